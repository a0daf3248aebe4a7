"""Programs that copy, move, link, remove, change or unpack files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping

from harness_adapters.guard.facts import Creates, Deletes, Links, Opaque, Reads, Writes
from harness_adapters.guard.machine import DATA, NOTHING, Output, Run
from harness_adapters.guard.programs.generic import (
    add_path,
    connect_urls,
    mention_files,
    mention_input,
    mention_paths,
    path_arguments,
    split_options,
)
from harness_adapters.guard.values import ANY, DEEP, MADE, STAR, hides, is_known, names

_PATCHED = re.compile(r"^(?:---|\+\+\+|\*\*\*) +(?:[ab]/)?([^\t\n]+)", re.MULTILINE)
_PATCHED_HEADER = re.compile(
    r"^(?:diff --git a/(\S+) b/(\S+)|rename (?:from|to) (.+)|copy to (.+)|Index: (.+))$", re.MULTILINE
)
_ENVELOPE = re.compile(r"^\*\*\* (Add File|Update File|Delete File|Move to): *(.+)$", re.MULTILINE)


def patched_paths(text: str) -> list[str]:
    """The files that a unified diff or a patch envelope names in its headers; lines of the body do not count."""
    found = [match[2].strip() for match in _ENVELOPE.finditer(text)]
    if not found:
        for match in _PATCHED.finditer(text):
            found.append(match[1].strip())
        for header in _PATCHED_HEADER.finditer(text):
            found += [group.strip() for group in header.groups() if group]
    return [
        path
        for path in dict.fromkeys(found)
        if path != "/dev/null" and not path.startswith(("Begin Patch", "End Patch"))
    ]


def added_lines(text: str) -> list[tuple[str, str]]:
    """The lines that a unified diff or a patch envelope adds, by the file they go to."""
    added: dict[str, list[str]] = {}
    path = ""
    for line in text.split("\n"):
        envelope = _ENVELOPE.match(line)
        if envelope:
            path = envelope[2].strip()
        elif line.startswith("+++ "):
            path = re.sub(r"^b/", "", line[4:].split("\t")[0].strip())
        elif line.startswith("+") and path:
            added.setdefault(path, []).append(line[1:])
    return [(path, "\n".join(lines)) for path, lines in added.items()]


def _destinations(run: Run, sources: list[str], target: str) -> list[str]:
    """Where copies land: the target itself and, as it may be a folder, each source's name below it."""
    names = [source.rstrip("/").rpartition("/")[2].replace(STAR, ANY) for source in sources]
    inside = [f"{target.rstrip('/')}/{name}" for name in names if name not in ("", ".", "..")]
    return [target, *inside]


def _into_folder(run: Run, target: str) -> bool:
    return target in (".", "..") or target.endswith("/")


def _copy(run: Run) -> Output:
    options, operands = split_options(run.args, "-t --target-directory -S --suffix -m --mode -o --owner -g --group")
    folder = (options.get("-t") or options.get("--target-directory") or [""])[0]
    deep = any(o in options for o in ("-r", "-R", "-a", "--recursive", "--archive"))
    if folder:
        sources, target = operands, folder
    elif len(operands) >= 2:
        sources, target = operands[:-1], operands[-1]
    else:
        sources, target = operands, ""
    moves = run.name in ("mv", "rename")
    for source in sources:
        add_path(run, Deletes if moves else Reads, source, deep=deep)
    if not target:
        return NOTHING
    if MADE in target:
        run.add(Opaque(run.name, "path"))
    destinations = _destinations(run, sources, target)
    for destination in destinations[1:] if _into_folder(run, target) and len(destinations) > 1 else destinations:
        add_path(run, Creates, destination)
    if deep or moves:
        for source in sources:
            _known_below(run, source, destinations)
    for source in sources:
        if source.startswith("/dev/") and is_known(source):
            continue
        for old in run.paths(source):
            for destination in destinations:
                run.machine.copied(run.name, old, run.paths(destination)[-1])
    if any(o in options for o in ("-s", "--symbolic-link")):
        _remember_links(run, sources, destinations)
    return NOTHING


def _known_below(run: Run, source: str, destinations: list[str]) -> None:
    """What the session has put below a folder that is copied, or below those that `folder/*` names, lands in it."""
    whole = source.removesuffix(STAR).rstrip("/")
    if not whole or not is_known(whole):
        return
    target = destinations[0].rstrip("/") if source.endswith((STAR, "/.")) else destinations[-1].rstrip("/")
    for folder in run.paths(whole):
        below = [path for path in run.machine.files.contents if path.startswith(folder.rstrip("/") + "/")]
        for path in below[:64]:
            add_path(run, Creates, f"{target}{path[len(folder.rstrip('/')) :]}")


def _link(run: Run) -> Output:
    options, operands = split_options(run.args, "-t --target-directory -S")
    if not operands:
        return NOTHING
    folder = (options.get("-t") or options.get("--target-directory") or [""])[0]
    if folder:
        sources, target = operands, folder
    elif len(operands) == 1:
        sources, target = operands, "."
    else:
        sources, target = operands[:-1], operands[-1]
    for source in sources:
        add_path(run, Reads, source)
    destinations = _destinations(run, sources, target)
    for destination in destinations:
        if destination not in (".", ".."):
            add_path(run, Creates, destination)
    _remember_links(run, sources, destinations)
    return NOTHING


def _remember_links(run: Run, sources: list[str], destinations: list[str]) -> None:
    for source in sources[:1]:
        for destination in destinations:
            link = run.paths(destination)[-1]
            base = run.paths(destination.rpartition("/")[0] or ".")[-1]
            target = run.machine.path(source, base)
            if (
                link != target
                and is_known(link)
                and not hides(target)
                and not target.startswith(link + "/")
                and destination not in (".", "..")
            ):
                run.machine.files.links[link] = target
                run.add(Links(run.name, link, target))


def _remove(run: Run) -> Output:
    _, operands = split_options(run.args, "-s -n --size --iterations")
    for operand in operands:
        if MADE in operand:
            run.add(Opaque(run.name, "path"))
        add_path(run, Deletes, operand, deep=True)
    return NOTHING


def _change(run: Run) -> Output:
    """`touch`, `truncate`, `chmod`, `chown`: every operand changes; the first is a mode or an owner for some."""
    options, operands = split_options(run.args, "-s --size -r --reference -d -t --date")
    if run.name in ("chmod", "chown", "chgrp", "chattr", "setfacl", "setfattr") and "--reference" not in options:
        operands = operands[1:] if not run.args[:1] or not re.match(r"^[-+][rwxXst]+$", run.args[0]) else operands
    deep = any(o in options for o in ("-R", "--recursive"))
    kind = Creates if run.name == "touch" else Writes
    for operand in operands:
        add_path(run, kind, operand, deep=deep)
    return NOTHING


def _dd(run: Run) -> Output:
    for arg in run.args:
        key, _, value = arg.partition("=")
        if key == "of":
            add_path(run, Creates, value)
        elif key == "if":
            add_path(run, Reads, value)
    return DATA


def _archive(run: Run) -> Output:
    """`tar`, `unzip`, `zip`, `cpio`, `7z`: extraction may write anything below its folder."""
    connect_urls(run, run.args)
    args = list(run.args)
    if run.name in ("tar", "bsdtar", "gtar") and args and not args[0].startswith("-"):
        args[0] = "-" + args[0]
    options, operands = split_options(
        args,
        "-C -f -d --directory --file --exclude -T --files-from --transform --xform --one-top-level -o -I --to-command",
    )
    for command in options.get("--to-command", []) + options.get("-I", []):
        run.shell.script(command, run.scope.fork(), DATA)
    extracts = "-x" in options or "--extract" in options or run.name in ("unzip", "7z", "cpio", "unar")
    folders = options.get("-C", []) + options.get("-d", []) + options.get("--directory", [])
    archives = options.get("-f", []) + options.get("--file", [])
    if run.name == "cpio" and any(arg.startswith(("-o", "-p", "--create", "--pass-through")) for arg in run.args):
        for line in run.stdin.text.split("\n")[:64]:
            add_path(run, Reads, line)
        for target in operands if "-p" in options or "--pass-through" in options else ():
            add_path(run, Writes, target, deep=True)
        return DATA
    if extracts:
        for folder in folders or ["."]:
            add_path(run, Writes, f"{folder}/{ANY}")
            work = run.machine.cwd
            if not any(path == work or path.startswith(work + "/") for path in run.paths(folder)):
                add_path(run, Writes, folder, deep=True)
        names = operands if archives or run.name != "unzip" else operands[1:]
        for name in names:
            add_path(run, Writes, f"{(folders or ['.'])[0]}/{name}")
        for archive in archives or operands[:1]:
            add_path(run, Reads, archive)
            for path in run.paths(archive):
                for entry in run.machine.files.archives.get(path, ()):
                    add_path(run, Writes, f"{(folders or ['.'])[0]}/{entry}", deep=True)
        return DATA
    for name in options.get("-T", []) + options.get("--files-from", []):
        add_path(run, Reads, name)
        listed = run.machine.files.contents.get(run.paths(name)[-1]) or ""
        for line in listed.split("\n")[:64]:
            add_path(run, Reads, line, deep=True)
    lists = "-t" in options or "--list" in options or "-l" in options
    for archive in archives or operands[:1]:
        add_path(run, Reads if lists else Creates, archive)
        if not lists:
            packed = operands if archives else operands[1:]
            renamed = options.get("--transform", []) + options.get("--xform", [])
            entries = [_renamed(entry, renamed) for entry in _entries(run, packed, folders)]
            run.machine.files.archives[run.paths(archive)[-1]] = tuple(entries)
    to_output = not archives and run.name in ("tar", "bsdtar", "gtar") and "-c" in options
    for operand in operands if archives or to_output else operands[1:]:
        add_path(
            run, Reads, f"{folders[0]}/{operand}" if folders and not operand.startswith("/") else operand, deep=True
        )
    return DATA


def _entries(run: Run, packed: list[str], folders: list[str]) -> tuple[str, ...]:
    """The names in an archive; a folder stands for the files that the session has put below it, where any are known."""
    base = run.paths(folders[0] if folders else ".")[-1]
    entries: list[str] = []
    for name in packed:
        place = run.machine.path(name, base)
        below = [path for path in run.machine.files.contents if path.startswith(place + "/")]
        entries += [path[len(base) + 1 :] if path.startswith(base + "/") else path for path in below]
        if name not in (".", "./"):
            entries.append(name)
    return tuple(dict.fromkeys(entries))[:64]


def _renamed(name: str, rules: list[str]) -> str:
    """The name of an archive's member after `s,pattern,replacement,` rules."""
    for rule in rules:
        parts = rule[2:].split(rule[1]) if len(rule) > 4 and rule[0] == "s" else []
        if len(parts) < 2 or len(rule) > 256 or re.search(r"[*+}]\)?[*+{]", parts[0]):
            continue
        with contextlib.suppress(re.error):
            name = re.sub(parts[0], parts[1].replace("&", r"\g<0>"), name, count=1)
    return name


def _compress(run: Run) -> Output:
    """`gzip`, `xz` …: the operand is replaced unless `-c` or `-k` is given; with `-d` the output cannot be known."""
    to_stdout = any(re.fullmatch(r"-[a-z0-9]*c[a-z0-9]*|--stdout", arg) for arg in run.args)
    keeps = any(arg in ("-k", "--keep") for arg in run.args)
    for operand in [arg for arg in run.args if not arg.startswith("-")]:
        add_path(run, Reads if to_stdout or keeps else Deletes, operand)
    return Output(MADE)


def _patch(run: Run) -> Output:
    options, operands = split_options(run.args, "-p -i -d -o --input --directory --output --strip")
    folder = (options.get("-d") or options.get("--directory") or ["."])[0]
    strip = (options.get("-p") or options.get("--strip") or ["0"])[0]
    texts: list[str] = []
    for name in options.get("-i", []) + options.get("--input", []) + operands[1:2]:
        add_path(run, Reads, name)
        texts.append(run.machine.files.contents.get(run.paths(name)[-1]) or ANY)
    targets = operands[:1] + options.get("-o", []) + options.get("--output", [])
    for target in targets:
        add_path(run, Writes, target)
        for text in texts:
            for _, added in added_lines(text):
                run.machine.put(run.name, run.paths(target)[-1], added)
    if targets:
        return DATA
    add_patch(run, texts or [run.stdin.text], folder, int(strip) if strip.isdigit() else 0)
    return DATA


def add_patch(run: Run, texts: list[str], folder: str, strip: int = 0) -> None:
    """Adds the writes of a patch. One that cannot be read may write anything below its folder."""
    for text in texts:
        paths = patched_paths(text)
        for path, added in added_lines(text):
            for place in run.paths(path if path.startswith("/") else f"{folder}/{path}"):
                run.machine.put(run.name, place, added)
        for path in paths:
            kind = Creates if f"*** Add File: {path}\n" in text else Writes
            stripped = path.split("/", strip)[-1] if 0 < strip <= path.count("/") else path
            add_path(run, kind, f"{folder}/{path}" if not path.startswith("/") else path)
            if stripped != path:
                add_path(run, Writes, f"{folder}/{stripped}")
        if not paths and not is_known(text):
            add_path(run, Writes, f"{folder}/{DEEP}")


def _apply_envelope(run: Run) -> Output:
    """`apply_patch`, as codex has it on its path: the patch is the argument or the input."""
    add_patch(run, [*run.args] or [run.stdin.text], ".")
    return DATA


def _mount(run: Run) -> Output:
    for value in path_arguments(run.args):
        add_path(run, Writes, value, deep=True)
    return NOTHING


def _editor(run: Run) -> Output:
    """`ed`, `ex`, `vim`: their operands change, and so may what their own commands name."""
    for value in path_arguments(run.args):
        add_path(run, Writes, value)
    mention_paths(run)
    mention_files(run, path_arguments(run.args))
    mention_input(run)
    return DATA


HANDLERS: Mapping[str, Callable[[Run], Output]] = {
    **dict.fromkeys(("cp", "mv", "install", "gcp", "gmv"), _copy),
    **dict.fromkeys(names("rm unlink shred srm trash trash-put wipe"), _remove),
    **dict.fromkeys(names("touch truncate chmod chown chgrp chattr setfacl setfattr fallocate"), _change),
    **dict.fromkeys(names("tar bsdtar gtar unzip zip cpio 7z 7za unar"), _archive),
    **dict.fromkeys(names("gzip bzip2 xz lz4 pigz compress"), _compress),
    **dict.fromkeys(names("mount umount losetup"), _mount),
    **dict.fromkeys(names("ed ex vi vim nano emacs nvim"), _editor),
    **dict.fromkeys(("apply_patch", "applypatch"), _apply_envelope),
    "ln": _link,
    "link": _link,
    "dd": _dd,
    "patch": _patch,
}
