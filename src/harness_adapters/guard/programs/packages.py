"""Package managers, clients of hosted services, and key stores: hosts that are meant without being written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from harness_adapters.guard.facts import (
    Connects,
    Evades,
    Reads,
    SeeksSecret,
    SetsEnv,
    UsesDataset,
    UsesRegistry,
    Writes,
)
from harness_adapters.guard.hosts import looks_like_host, normalise, url_endpoints
from harness_adapters.guard.machine import DATA, FROM_NETWORK, Output, Run
from harness_adapters.guard.programs.generic import add_path, connect_urls, path_arguments
from harness_adapters.guard.values import ANY, hides, names

_HUBS: Mapping[str, str] = {
    "hf": "huggingface.co",
    "huggingface-cli": "huggingface.co",
    "gh": "api.github.com",
    "hub": "api.github.com",
    "glab": "gitlab.com",
    "kaggle": "www.kaggle.com",
    "aws": "amazonaws.com",
    "s3cmd": "amazonaws.com",
    "s5cmd": "amazonaws.com",
    "gsutil": "storage.googleapis.com",
    "gcloud": "googleapis.com",
    "bq": "googleapis.com",
    "az": "azure.com",
    "docker": "registry-1.docker.io",
    "podman": "registry-1.docker.io",
    "skopeo": "registry-1.docker.io",
    "crane": "registry-1.docker.io",
    "wandb": "api.wandb.ai",
    "modal": "api.modal.com",
    "ollama": "registry.ollama.ai",
    "heroku": "api.heroku.com",
    "fly": "api.fly.io",
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
    r"\b(auth\s+(token|print-access-token|print-identity-token|status|login|list|application-default)"
    r"|configure\s+(get|list|export-credentials)|export-credentials|get-session-token|get-login-password"
    r"|get-secret-value|get-parameters?|print-access-token|account\s+get-access-token"
    r"|config\s+(config-helper|view)|whoami|secret[s]?\s|sts\s)"
)


def _hub(run: Run) -> Output:
    """A client of a hosted service: reaches that service's host whatever its arguments are."""
    words = " ".join(run.args)
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
    if not local:
        run.add(Connects(run.name, _HUBS[run.name]))
    for arg in run.args:
        run.add(UsesDataset(run.name, arg)) if "/" in arg and not arg.startswith(("-", "/", ".")) else None
    connect_urls(run, run.args)
    for value in path_arguments(run.args):
        add_path(run, Reads, value)
    return FROM_NETWORK


def _package_manager(run: Run) -> Output:
    """`pip install`, `npm install` …: the index named by an option, or the default one."""
    words = [arg for arg in run.args if not arg.startswith("-")]
    verb = words[0] if words else ""
    if run.name == "uv" and words[:1] in (["pip"], ["tool"]):
        verb = words[1] if len(words) > 1 else ""
        words = words[1:]
    if run.name == "uv" and verb == "run":
        after = run.args[run.args.index("run") + 1 :]
        while after and after[0].startswith("-"):
            after = after[2:] if after[0] in ("--with", "--python", "-p", "--extra") else after[1:]
        return run.again(after) if after else DATA
    _package_settings(run, verb, words)
    offline = any(arg in ("--no-index", "--offline", "--dry-run") for arg in run.args)
    if verb in _FETCH_VERBS.get(run.name, _ANY_VERB) and not offline:
        ends = [end for arg in run.args for end in url_endpoints(arg)]
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
        modules = [w for w in words[1:] if run.name == "go" and looks_like_host(w.split("/")[0])]
        for module in modules:
            run.add(Connects(run.name, normalise(module.split("/")[0])))
        local = bool(words[1:]) and all(w.startswith((".", "/")) for w in words[1:])
        indexed = (
            any(
                o.startswith(("--index-url", "-i", "--registry", "--default-index", "--extra-index-url"))
                for o in run.args
            )
            and ends
        )
        if not indexed and not modules and not (local and not ends):
            run.add(UsesRegistry(run.name))
    for flag in ("--target", "-t", "--prefix", "--root", "-d", "--dest", "-r", "--requirement"):
        for i, arg in enumerate(run.args[:-1]):
            if arg == flag and "://" not in run.args[i + 1]:
                add_path(run, Reads if flag in ("-r", "--requirement") else Writes, run.args[i + 1])
    return Output(ANY, plain=True)


_ANY_VERB = frozenset(names("install add download get fetch update upgrade sync search exec create dlx i ci"))
_FETCH_VERBS: Mapping[str, frozenset[str]] = {
    "go": frozenset(("get", "install", "mod")),
    "cargo": frozenset(names("install add fetch update search")),
    "npx": frozenset(),
}


def _package_settings(run: Run, verb: str, words: list[str]) -> None:
    joined = " ".join(run.args)
    if verb == "config" and "proxy" in joined and any(w in ("set", "delete", "rm", "unset") for w in words):
        run.add(Evades(run.name, "changes the package manager's proxy"))
    if verb == "config" and re.search(r"_auth|token|password", joined) and "get" in words:
        run.add(SeeksSecret(run.name, joined[:60]))
    for i, arg in enumerate(run.args):
        if arg.startswith(("--proxy", "--https-proxy")):
            value = arg.partition("=")[2] if "=" in arg else (run.args[i + 1] if i + 1 < len(run.args) else "")
            run.add(SetsEnv(run.name, "http_proxy", value))
        if arg.startswith("--noproxy"):
            run.add(Evades(run.name, "skips the proxy"))


def _runner_of_packages(run: Run) -> Output:
    """`npx`, `uvx`, `pipx run`: downloads unless the tool is there; then runs it."""
    connect_urls(run, run.args)
    if not any(arg in ("--no-install", "--offline") for arg in run.args):
        names = [arg for arg in run.args if not arg.startswith("-")]
        known = {
            "tsc",
            "jest",
            "vitest",
            "eslint",
            "prettier",
            "mocha",
            "ts-node",
            "tsx",
            "vite",
            "next",
            "ruff",
            "pytest",
            "mypy",
            "black",
        }
        if names and names[0].partition("@")[0] not in known:
            run.add(UsesRegistry(run.name))
        elif names:
            return run.again(run.args[run.args.index(names[0]) :])
    return DATA


def _system_packages(run: Run) -> Output:
    words = [arg for arg in run.args if not arg.startswith("-")]
    if words and words[0] in ("install", "update", "upgrade", "add", "download", "source", "-S"):
        local = len(words) > 1 and all(w.startswith((".", "/")) for w in words[1:])
        connect_urls(run, run.args)
        if not local:
            run.add(UsesRegistry(run.name))
    return DATA


def _key_store(run: Run) -> Output:
    """`security`, `secret-tool`, `pass`, `vault` …"""
    run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    return DATA


def _keys(run: Run) -> Output:
    if run.name == "ssh-add" or "--export-secret-keys" in run.args:
        run.add(SeeksSecret(run.name, " ".join(run.args)[:60]))
    return DATA if not hides(run.stdin.text) else Output(ANY)


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(_HUBS, _hub),
    **dict.fromkeys(
        names(
            "pip pip3 pipx uv npm pnpm yarn cargo go gem conda mamba poetry pdm bun cpan cpanm composer brew luarocks"
        ),
        _package_manager,
    ),
    **dict.fromkeys(("npx", "uvx", "bunx"), _runner_of_packages),
    **dict.fromkeys(names("apt apt-get aptitude dnf yum apk pacman zypper"), _system_packages),
    **dict.fromkeys(
        names("security secret-tool pass op vault bw lpass keyring kwallet-query gopass docker-credential-desktop"),
        _key_store,
    ),
    "ssh-add": _keys,
}
