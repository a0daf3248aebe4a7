"""Package managers and build tools: indexes and hosts that are meant without being written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from harness_adapters.guard.facts import (
    Connects,
    Evades,
    GetsPackage,
    Reads,
    SeeksSecret,
    SetsEnv,
    Shadows,
    UsesRegistry,
    Writes,
)
from harness_adapters.guard.hosts import looks_like_host, normalise, url_endpoints
from harness_adapters.guard.machine import DATA, NOTHING, Output, Run
from harness_adapters.guard.programs.generic import add_path, connect_urls
from harness_adapters.guard.programs.readers import reads_arguments
from harness_adapters.guard.values import ANY, is_known, names


def _package_manager(run: Run) -> Output:
    """`pip install`, `npm install` …: the index named by an option, or the default one."""
    words = [arg for arg in run.args if not arg.startswith("-")]
    verb = words[0] if words else ""
    if verb.startswith("shell."):
        # `conda shell.bash hook` prints its own functions for `eval`.
        return NOTHING
    if run.name == "uv" and words[:1] in (["pip"], ["tool"]):
        verb = words[1] if len(words) > 1 else ""
        words = words[1:]
    if run.name == "uv" and verb == "run":
        after = run.args[run.args.index("run") + 1 :]
        while after and after[0].startswith("-"):
            after = after[2:] if after[0] in ("--with", "--python", "-p", "--extra") else after[1:]
        return run.again(after) if after else DATA
    if verb == "exec" and run.name in ("pnpm", "yarn", "poetry", "pdm", "mise"):
        # What the project has installed; nothing is fetched.
        after = run.args[run.args.index("exec") + 1 :]
        return run.again(after[1:] if after[:1] == ["--"] else after) if after else DATA
    _package_settings(run, verb, words)
    _packages(run, verb, words[1:])
    if run.name in ("npm", "pnpm", "yarn", "bun"):
        _scripts(run, words)
    offline = run.name == "go" and words[:2] in (["mod", name] for name in ("edit", "graph", "verify", "init", "why"))
    offline = offline or any(arg in ("--no-index", "--offline", "--dry-run") for arg in run.args)
    if verb in _FETCH_VERBS.get(run.name, _ANY_VERB) and not offline:
        ends = [end for arg in run.args for end in url_endpoints(arg)]
        for end in ends:
            run.add(Connects(run.name, end.host, end.port))
        modules = [w for w in words[1:] if run.name == "go" and looks_like_host(w.split("/")[0])]
        through_proxy = bool(run.scope.variables.get("GOPROXY"))
        for module in modules if not through_proxy else ():
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
            _configured_indexes(run)
    if run.name == "go" and words[:2] == ["mod", "edit"]:
        replaced = [arg.partition("=")[2] for arg in run.args if arg.startswith("-replace=")]
        replaced += [after for before, after in pairwise(run.args) if before == "-replace"]
        for path in run.paths("go.mod"):
            run.add(Writes(run.name, path))
            for text in replaced:
                run.machine.put(run.name, path, "replace " + text.replace("=", " => "))
    _local_plugins(run, words[1:])
    for flag in (*_FOLDER_OPTIONS, *_INPUT_OPTIONS):
        for i, arg in enumerate(run.args[:-1]):
            if arg == flag and "://" not in run.args[i + 1]:
                add_path(run, Reads if flag in _INPUT_OPTIONS else Writes, run.args[i + 1])
                content = run.machine.files.contents.get(run.paths(run.args[i + 1])[-1]) or ""
                connect_urls(
                    run, [w for line in content.split("\n") if "index" in line for w in re.split(r"[\s=]", line)]
                )
    return Output(ANY, plain=True)


_FOLDER_OPTIONS = ("--target", "-t", "--prefix", "--root", "-d", "--dest")
_INPUT_OPTIONS = ("-r", "--requirement", "--find-links", "-c", "--constraint")


def _bundle(run: Run) -> Output:
    """`bundle`: a command of the bundle's, settings, or gems that are fetched."""
    words = [arg for arg in run.args if not arg.startswith("-")]
    verb = words[0] if words else "install"
    if verb == "exec":
        after = run.args[run.args.index("exec") + 1 :]
        return run.again(after) if after else DATA
    if verb == "config":
        connect_urls(run, run.args[-1:] if "set" in words else [])
        return DATA
    if verb in ("install", "update", "add", "lock", "outdated") and "--local" not in run.args:
        connect_urls(run, run.args)
        run.add(UsesRegistry(run.name))
        _configured_indexes(run)
        _packages(run, verb, words[1:])
        return DATA
    return reads_arguments(run)


_ARTIFACT = re.compile(r"^-Dartifact=[\w.-]+:([\w.-]+)")


def _maven(run: Run) -> Output:
    """`mvn dependency:get`: an artifact of its own beside the build."""
    if "-DshowPasswords=true" in run.args:
        run.add(SeeksSecret(run.name, "passwords in the settings"))
    for arg in run.args:
        named = _ARTIFACT.match(arg)
        if named:
            run.add(GetsPackage(run.name, named[1], True))
            run.add(UsesRegistry(run.name))
    return reads_arguments(run)


def _local_plugins(run: Run, operands: list[str]) -> None:
    """A folder of the session's own that is installed, with the plugins that it registers."""
    for operand in operands:
        for folder in run.paths(operand) if operand.startswith((".", "/")) else ():
            files = run.machine.files
            written = [
                *files.contents.items(),
                *((path, "\n".join(pieces)) for path, pieces in files.fragments.items()),
            ]
            for path, content in written:
                if path.startswith(folder.rstrip("/") + "/") and content and "pytest11" in content:
                    run.add(Shadows(run.name, "pytest", "a plugin that the session wrote"))


def _scripts(run: Run, words: list[str]) -> None:
    """`npm run NAME` and its hooks, where the session has written that script."""
    verb = words[0] if words else ""
    name = words[1] if verb in ("run", "run-script") and len(words) > 1 else verb
    names_run = {name, f"pre{name}", f"post{name}"} - {"", "install", "ci", "add"}
    for path in run.paths("package.json"):
        texts = [run.machine.files.contents.get(path) or "", *run.machine.files.fragments.get(path, [])]
        for script, command in re.findall(r'"([\w:.-]+)"\s*:\s*"((?:[^"\\]|\\.)*)"', "\n".join(texts)):
            if script in names_run:
                run.shell.script(command.replace('\\"', '"'), run.scope.fork(), DATA)


_MANIFESTS = frozenset(names("package.json pyproject.toml Pipfile Gemfile Cargo.toml go.mod composer.json pom.xml"))


def _configured_indexes(run: Run) -> None:
    """Indexes that settings written in this session name, and lists of packages that it has changed."""
    files = run.machine.files
    for path, content in list(files.contents.items()):
        if content and path.endswith(("/pip.conf", "/.npmrc", "/.condarc", "/bunfig.toml", "/.yarnrc", "/.yarnrc.yml")):
            connect_urls(run, content.split())
    for path in files.changed():
        folder, _, name = path.rpartition("/")
        if name in _MANIFESTS and folder in run.scope.cwds:
            run.add(Reads(run.name, path))


def _packages(run: Run, verb: str, operands: list[str]) -> None:
    """The packages that are downloaded, and whether to a place of their own."""
    alone = run.name == "go" and verb == "mod"
    if alone:
        verb, operands = (operands or [""])[0], operands[1:]
    if verb not in ("install", "add", "download", "get", "fetch", "pack", "view", "unpack", "wheel", "i", "clone"):
        return
    flags = {arg.partition("=")[0] for arg in run.args}
    aside = (
        alone
        or verb in ("pack", "view", "unpack")
        or bool(flags & {"--target", "-t", "--prefix", "--root", "--no-install-project"})
    )
    aside = aside or ("--no-binary" in flags and verb in ("download", "wheel"))
    for operand in operands:
        name = re.split(r"[=<>!~\[;@ ]", operand.lstrip("@"), maxsplit=1)[0]
        if name[:1].isalnum() and is_known(name) and not operand.startswith((".", "/")) and "://" not in operand:
            if run.name == "go":
                name = _MAJOR.sub("", name)
            run.add(GetsPackage(run.name, name.rpartition("/")[2] if run.name in ("go", "npm") else name, aside))


_MAJOR = re.compile(r"/v\d+$")
_ANY_VERB = frozenset(names("install add download get fetch update upgrade sync search exec create dlx i ci"))
_FETCH_VERBS: Mapping[str, frozenset[str]] = {
    "go": frozenset(("get", "install", "mod")),
    "cargo": frozenset(names("install add fetch update search")),
    "npx": frozenset(),
}


def _package_settings(run: Run, verb: str, words: list[str]) -> None:
    joined = " ".join(run.args)
    if verb in ("pkg", "set-script") and run.name in ("npm", "pnpm", "yarn"):
        for path in run.paths("package.json"):
            run.add(Writes(run.name, path))
            run.machine.put(run.name, path, joined)
            if verb == "set-script":
                run.machine.put(run.name, path, '"{}": "{}"'.format(*(*words[1:3], "", "")[:2]))
    if verb == "config" and "proxy" in joined and any(w in ("set", "delete", "rm", "unset") for w in words):
        run.add(Evades(run.name, "changes the package manager's proxy"))
    if verb == "config" and re.search(r"_auth|token|password", joined, re.IGNORECASE) and "get" in words:
        run.add(SeeksSecret(run.name, joined[:60]))
    stores = run.name == "go" and verb == "env" and "-w" in run.args
    for name, assigned, value in (arg.partition("=") for arg in run.args) if stores else ():
        if assigned:
            run.add(SetsEnv(run.name, name, value))
    if stores or (verb == "config" and "set" in words):
        connect_urls(run, [run.args[-1].partition("=")[2] or run.args[-1]])
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
        before = run.args[: run.args.index(names[0])] if names else run.args
        asks = any(arg in ("-y", "--yes", "-p", "--package", "--from", "--with", "--refresh") for arg in before)
        if names and (asks or "@" in names[0] or run.name != "npx"):
            run.add(UsesRegistry(run.name))
        elif names:
            # What the project has installed; a tool that is missing asks before it is fetched.
            return run.again(run.args[run.args.index(names[0]) :])
    return DATA


def _system_packages(run: Run) -> Output:
    words = [arg for arg in run.args if not arg.startswith("-")]
    if words and words[0] in ("install", "update", "upgrade", "add", "download", "source", "-S"):
        local = len(words) > 1 and all(w.startswith((".", "/")) for w in words[1:])
        connect_urls(run, run.args)
        if not local:
            run.add(UsesRegistry(run.name))
        for word in words[1:] if words[0] in ("source", "download") else ():
            run.add(GetsPackage(run.name, word, True))
    return DATA


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(
        names(
            "pip pip3 pipx uv npm pnpm yarn cargo go gem conda mamba poetry pdm bun cpan cpanm composer brew luarocks"
        ),
        _package_manager,
    ),
    **dict.fromkeys(("npx", "uvx", "bunx"), _runner_of_packages),
    **dict.fromkeys(names("apt apt-get aptitude dnf yum apk pacman zypper"), _system_packages),
    "mvn": _maven,
    "bundle": _bundle,
}
