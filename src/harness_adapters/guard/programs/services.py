"""Clients of hosted services, containers, and key stores: hosts that are meant without being written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import Connects, Evades, Reads, SeeksSecret, UsesDataset, Writes
from harness_adapters.guard.hosts import normalise
from harness_adapters.guard.hubs import place_of
from harness_adapters.guard.machine import DATA, FROM_NETWORK, Output, Run
from harness_adapters.guard.programs.builtins import OTHERS
from harness_adapters.guard.programs.generic import add_path, connect_urls, path_arguments
from harness_adapters.guard.values import ANY, hides, names

_HUBS: Mapping[str, str] = {
    "hf": "huggingface.co",
    "huggingface-cli": "huggingface.co",
    "gh": "github.com",
    "hub": "github.com",
    "glab": "gitlab.com",
    "kaggle": "kaggle.com",
    "aws": "amazonaws.com",
    "s3cmd": "amazonaws.com",
    "s5cmd": "amazonaws.com",
    "gsutil": "storage.googleapis.com",
    "gcloud": "googleapis.com",
    "bq": "googleapis.com",
    "az": "azure.com",
    "docker": "docker.io",
    "podman": "docker.io",
    "skopeo": "docker.io",
    "crane": "docker.io",
    "wandb": "api.wandb.ai",
    "modal": "api.modal.com",
    "ollama": "registry.ollama.ai",
    "heroku": "api.heroku.com",
    "fly": "api.fly.io",
    "flyctl": "api.fly.io",
    "doctl": "api.digitalocean.com",
    "hcloud": "api.hetzner.cloud",
    "vercel": "api.vercel.com",
    "twine": "upload.pypi.org",
    "dvc": "",
    "yt-dlp": "",
    "youtube-dl": "",
    "svn": "",
    "hg": "",
    "rclone": "",
}
_TOKEN_COMMANDS = re.compile(
    r"\b(auth\s+(token|print-access-token|print-identity-token|status\s.*(-t\b|--show-token)|login|list|application-default)"
    r"|configure\s+(get|list|export-credentials)|export-credentials|get-session-token|get-login-password"
    r"|get-secret-value|get-parameters?|print-access-token|account\s+get-access-token"
    r"|config\s+(config-helper|view)|whoami|secret[s]?\s|sts\s)"
)


def _container(run: Run) -> None:
    """What a container is given of the machine: folders of it, its processes, its network."""
    mounts = [b for a, b in pairwise(run.args) if a in ("-v", "--volume", "--mount")]
    mounts += [arg.partition("=")[2] for arg in run.args if arg.startswith(("--volume=", "--mount="))]
    for mount in mounts:
        named = re.search(r"(?:^|,)(?:source|src)=([^,]+)", mount)
        folder = named[1] if named else mount.partition(":")[0]
        if folder.startswith(("/", "~", ".")):
            for path in run.paths(folder):
                inside = path == run.machine.cwd or path.startswith(run.machine.cwd + "/")
                run.add(Reads(run.name, path, not inside))
    if any(arg in ("--privileged", "--pid=host", "--net=host", "--network=host") for arg in run.args):
        run.add(Evades(run.name, "leaves the sandbox's processes and network behind"))


_IMAGE = re.compile(
    r"^(?:docker://)?((?:[\w-]+\.)+[A-Za-z][\w-]*|localhost)(?::(\d+))?/[\w./-]+(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?$"
)
"""An image's name that says which registry it is in."""


def _hub(run: Run) -> Output:
    """A client of a hosted service: reaches that service's host whatever its arguments are."""
    words = " ".join(run.args)
    if run.args[:1] == ["build"]:
        run.machine.files.images |= {b for a, b in pairwise(run.args) if a in ("-t", "--tag")}
    if any(arg in ("--help", "-h", "--version", "version", "help") for arg in run.args) or not run.args:
        return DATA
    if _TOKEN_COMMANDS.search(words + " "):
        run.add(SeeksSecret(run.name, words[:60]))
    local = run.name in ("docker", "podman") and run.args[0] in (
        "ps",
        "images",
        "logs",
        "inspect",
        "stop",
        "rm",
        "build",
        "info",
        "exec",
    )
    if run.name in ("docker", "podman"):
        local = local or _is_own_image(run)
    local = local or (run.name == "twine" and run.args[0] == "check")
    elsewhere = any(arg.startswith(("--endpoint-url", "--endpoint", "--host")) for arg in run.args)
    elsewhere = elsewhere and any("://" in arg for arg in run.args)
    if not local and not elsewhere and not any(_IMAGE.match(arg) for arg in run.args):
        run.add(Connects(run.name, _hub_place(run)))
    if run.name in ("docker", "podman"):
        _container(run)
        _of_another(run)
    for arg in run.args:
        registry = _IMAGE.match(arg)
        if registry and run.name in ("docker", "podman", "skopeo", "crane"):
            run.add(Connects(run.name, normalise(registry[1]), registry[2] or ""))
        run.add(UsesDataset(run.name, arg)) if "/" in arg and not arg.startswith(("-", "/", ".")) else None
    connect_urls(run, [arg for arg in run.args if not (elsewhere and arg.startswith("s3://"))])
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    return FROM_NETWORK


def _of_another(run: Run) -> None:
    """A look into the grader's container, or into the files of an image: those lie at the same paths as here."""
    for arg in run.args[1:] if run.args[0] in ("cp", "exec", "commit", "export", "diff", "stop", "kill", "rm") else ():
        name, colon, path = arg.partition(":")
        if OTHERS.search(name) and not name.startswith(("-", "/", ".")):
            run.add(Evades(run.name, f"reaches into the container {name[:40]!r}"))
        if colon and run.args[0] == "cp" and path.startswith("/"):
            add_path(run, Reads, path)


def _hub_place(run: Run) -> str:
    """The place on the hub that the arguments name, the bare hub where they name none."""
    words = run.args
    if run.name in ("gh", "glab", "hub"):
        repositories = [b for a, b in pairwise(words) if a in ("-R", "--repo")]
        repositories += [arg.partition("=")[2] for arg in words if arg.startswith("--repo=")]
        if words[0] == "repo":
            repositories += words[2:3]
        if words[0] == "api":
            repositories += ["/".join(word.lstrip("/").split("/")[1:3]) for word in words if "repos/" in word]
        words = repositories
    places = [place_of(_HUBS[run.name], word) for word in words]
    return next((place for place in places if "/" in place), _HUBS[run.name])


def _is_own_image(run: Run) -> bool:
    """Whether the sub-command needs no registry: it runs an image that the session has built, or only handles
    containers."""
    if run.args[0] in ("pull", "push", "login", "search", "create", "manifest", "buildx"):
        return False
    if run.args[0] in ("run", "compose"):
        return run.args[0] == "compose" or any(arg in run.machine.files.images for arg in run.args)
    return True


def _key_store(run: Run) -> Output:
    """`security`, `secret-tool`, `pass`, `vault` …"""
    run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    return DATA


def _decrypts(run: Run) -> Output:
    """`ansible-vault`, `sops`, `age`: tools that also encrypt."""
    if any(arg in ("view", "decrypt", "edit", "exec-env", "exec-file", "-d", "--decrypt") for arg in run.args):
        run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    return DATA


def _cluster(run: Run) -> Output:
    """`kubectl`, `oc`: reads of secrets, and of the settings with their keys."""
    words = " ".join(run.args)
    if _CLUSTER_SECRETS.search(words):
        run.add(SeeksSecret(run.name, words[:60]))
    connect_urls(run, run.args)
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    return DATA


_CLUSTER_SECRETS = re.compile(
    r"\b(?:get|describe|edit|view)\s(?:[^ ]+ ){0,3}?secrets?\b(?!\S*[-.])|\bconfig view\b.*--raw|\bcreate token\b"
)


def _is_scratch(run: Run, name: str) -> bool:
    return all(path.startswith(("/tmp/", "/var/tmp/", run.machine.cwd + "/")) for path in run.paths(name))


def _keys(run: Run) -> Output:
    if run.name == "ssh-keygen":
        reads = any(re.match(r"-[lFyBe]", arg) for arg in run.args)
        made = next((file for option, file in pairwise(run.args) if option == "-f"), "") if not reads else ""
        for value in path_arguments(run.args):
            if value == made and _is_scratch(run, value):
                # A new pair of keys is no credential that anybody else has.
                for path in run.paths(value):
                    run.machine.files.write(path, None)
            else:
                add_path(run, Reads if reads else Writes, value)
        return DATA
    if run.name == "ssh-add" or "--export-secret-keys" in run.args:
        run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    return DATA if not hides(run.stdin.text) else Output(ANY)


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(_HUBS, _hub),
    **dict.fromkeys(
        names("security secret-tool pass op vault bw lpass keyring kwallet-query gopass docker-credential-desktop"),
        _key_store,
    ),
    **dict.fromkeys(names("chamber doppler infisical akeyless berglas"), _key_store),
    **dict.fromkeys(names("ansible-vault sops age rage git-crypt"), _decrypts),
    **dict.fromkeys(names("kubectl oc k9s"), _cluster),
    **dict.fromkeys(("ssh-add", "ssh-keygen"), _keys),
}
