"""Paths and globs: normalising what a program would open, and asking whether it may be a path that the policy names.

Nothing here looks at a disk. Symbolic links are those that the calls themselves have made (`history`).

Asymmetry: a path's own wild cards (`rm -rf *`) meet a glob wherever both can match one name; an unknown piece meets it
only where the known pieces around it already point there (see `values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from harness_adapters.guard.values import ANY, DEEP, MADE, ONE, STAR, UNSET, hides, is_known, wild

_PROC_CWD = re.compile(r"^/proc/[^/]+/cwd(?=/|$)")
_PROC_ROOT = re.compile(r"^/proc/[^/]+/root(?=/|$)")
_LAYER = re.compile(r"^/var/lib/(?:docker|containers|containerd)/(?:[^/]+/){1,6}?(?:diff|merged|rootfs|fs)(?=/|$)")
"""The root of a container's file system, or of a layer of its image."""
_UNTIDY = re.compile(r"//|/\.\.?(?:/|$)|/$|^/(?:proc|var/lib)/")
"""A path of which something may have to be taken away."""
_RESIDUE = re.compile(
    r"^(\*?\.(py[cod\x04]|log|tmp|swp|orig|rej|bak|class|o)|__pycache__|\.(pytest|mypy|ruff)_cache|\*\.egg-info"
    r"|\.DS_Store|\*?~)$"
)
_USER_HOME = re.compile(r"~([a-z_][\w-]*)(?=/|$)")
_MAX_LINKS = 8
_MAX_SEGMENTS = 64
_HOLES = (ANY, MADE, UNSET)
_WILD_CARDS = STAR + ONE + DEEP


def absolute(path: str, cwd: str, home: str) -> str:
    """The normalised absolute path: `~` and `file:` resolved, `.`, `..` and doubled slashes gone."""
    if path.startswith("file:"):
        path = re.sub(r"^file:(//[^/]*)?", "", path)
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif path.startswith("~") and (user := _USER_HOME.match(path)):
        path = ("/root" if user[1] == "root" else f"/home/{user[1]}") + path[user.end() :]
    if path.startswith(UNSET):
        path = path.lstrip(UNSET) or ANY
    if not path.startswith("/"):
        path = f"{cwd}/{path}"
    if not _UNTIDY.search(path):
        return path
    if path.startswith("/proc/"):
        path = _PROC_ROOT.sub("", _PROC_CWD.sub(cwd, path)) or "/"
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    joined = "/" + "/".join(segments)
    if joined.startswith("/proc/"):
        joined = _PROC_ROOT.sub("", _PROC_CWD.sub(cwd, joined)) or "/"
    return (_LAYER.sub("", joined) or "/") if joined.startswith("/var/lib/") else joined


def follow(path: str, links: Mapping[str, str]) -> str:
    """`path` with every known link in it resolved."""
    for _ in range(_MAX_LINKS if links else 0):
        link = next((name for name in links if path == name or path.startswith(name + "/")), None)
        if link is None:
            break
        path = (links[link].rstrip("/") + path[len(link) :]) or "/"
    return path


@dataclass(frozen=True, slots=True)
class Glob:
    """One policy glob. `base` is the number of leading segments without a wild card.

    `pointed`: a wild card in a path is no hit by itself; some literal part of the path must lead to the glob's last
    literal segment. So it is for a checkout below the working folder, whose name nobody gave.
    """

    segments: tuple[str, ...]
    base: int
    pointed: bool = False

    @property
    def is_tree(self) -> bool:
        return self.segments[-1:] == (DEEP,)


class Globs:
    """A set of policy globs to ask paths about. A path without unknown pieces costs one regular expression.

    `pointed` asks of every glob what `Glob.pointed` says.
    """

    def __init__(self, patterns: Iterable[str], *, cwd: str, home: str, pointed: bool = False) -> None:
        compiled = (glob for pattern in patterns for glob in _compile(pattern, cwd, home))
        self.globs = tuple(replace(glob, pointed=True) if pointed else glob for glob in compiled)
        self._names = frozenset(glob.segments[1] for glob in self.globs if _is_name(glob))
        self._above = frozenset(
            "/" + "/".join(glob.segments[:length]) for glob in self.globs for length in range(max(glob.base, 1))
        )
        self._by_first: dict[str, list[Glob]] = {}
        for glob in self.globs:
            self._by_first.setdefault(glob.segments[0] if glob.base else "", []).append(glob)
        self._exact = {
            first: re.compile("|".join(_expression(glob) for glob in globs if not _is_name(glob)) or "(?!)")
            for first, globs in self._by_first.items()
        }

    def meets(self, path: str, *, deep: bool = False) -> bool:
        """Whether `path` may be (or, when `deep`, may hold) a path that one of the globs names."""
        if not is_known(path):
            return self._may_meet(path, deep=deep)
        if path.rpartition("/")[2] in self._names or (deep and path in self._above):
            return True
        for first in (path.split("/", 2)[1] if path.startswith("/") else path, ""):
            exact = self._exact.get(first)
            if exact is not None and exact.fullmatch(path):
                return True
        return False

    def _may_meet(self, path: str, *, deep: bool) -> bool:
        segments = tuple(segment for segment in path.split("/") if segment)
        if segments and is_known(segments[0]):
            globs = [*self._by_first.get(segments[0], ()), *self._by_first.get("", ())]
        else:
            globs = list(self.globs)
        return any(_meets(segments, glob) or (deep and _holds(segments, glob)) for glob in globs)


def _is_name(glob: Glob) -> bool:
    """Whether the glob is a plain name in any folder."""
    return len(glob.segments) == 2 and glob.segments[0] == DEEP and not _wild(glob.segments[1])


@lru_cache(maxsize=256)
def globs_of(patterns: tuple[str, ...], cwd: str, home: str, *, pointed: bool = False) -> Globs:
    """The compiled set, made once for equal arguments."""
    return Globs(patterns, cwd=cwd, home=home, pointed=pointed)


def _expression(glob: Glob) -> str:
    """A regular expression for known paths; a final `**` stands for the folder itself as well."""
    parts = []
    for segment in glob.segments:
        if segment == DEEP:
            parts.append("(?:/[^/]+)*")
        else:
            escaped = re.escape(segment).replace(re.escape(STAR), "[^/]*").replace(re.escape(ONE), "[^/]")
            parts.append("/" + escaped)
    return "".join(parts) or "/"


def _compile(pattern: str, cwd: str, home: str) -> list[Glob]:
    for name in ("${HOME}", "$HOME"):
        pattern = pattern.replace(name, "~") if pattern.startswith(name) else pattern
    relative = not pattern.startswith(("/", "~"))
    marked = wild(pattern)
    variants = [absolute(marked, cwd, home)]
    if relative and "/" in pattern.strip("/"):
        # A checkout directly below the working folder is where its relative globs apply as well.
        variants.append(absolute(f"{STAR}/{marked}", cwd, home))
    globs: list[Glob] = []
    for variant in variants:
        segments = tuple(segment for segment in variant.split("/") if segment)
        base = next((i for i, s in enumerate(segments) if _wild(s)), len(segments))
        globs.append(Glob(segments, base, pointed=bool(globs)))
    return globs


def _wild(segment: str) -> bool:
    return any(marker in segment for marker in (STAR, ONE, DEEP))


def _holds(path: tuple[str, ...], glob: Glob) -> bool:
    """Whether `path` is a folder above what the glob names."""
    if any(marker in segment for segment in path for marker in _HOLES):
        return False
    base = glob.segments[: max(glob.base, 1)]
    if len(path) >= len(base) or (glob.pointed and any(_wild(segment) for segment in path)):
        return False
    return all(_segments_meet(p, g) for p, g in zip(path, base, strict=False))


def _meets(path: tuple[str, ...], glob: Glob) -> bool:
    if len(path) > _MAX_SEGMENTS:
        return False
    if DEEP in path and glob.is_tree and _RESIDUE.match(path[-1].replace(STAR, "*")):
        return False
    if path and glob.segments[:1] == (DEEP,) and not path[-1].strip(_WILD_CARDS):
        # "Every file here" does not point at a file that may lie anywhere.
        return False
    if (glob.pointed or any(hides(segment) for segment in path)) and not _evidence(path, glob):
        return False
    return _match(path, glob.segments)


def _evidence(path: tuple[str, ...], glob: Glob) -> bool:
    """With an unknown segment in the path, the glob's last literal segment must stand in it literally.

    A glob with one literal segment only (`/tests/**`) needs it where it belongs: at the start.
    """
    literal = [segment for segment in glob.segments if segment.strip(_WILD_CARDS)]
    if not literal:
        return False
    if len(literal) == 1 and glob.segments[0] != DEEP:
        return path[:1] == (literal[0],)
    return any(_points_at(segment, literal[-1]) for segment in path)


def _points_at(segment: str, wanted: str) -> bool:
    """Whether a segment's known text leads to `wanted`: by how it starts, or by holding all of its literal part."""
    if not _segments_meet(segment, wanted):
        return False
    if segment[:1] not in (*_HOLES, STAR, DEEP):
        return True
    chunk = max(re.split(f"[{_WILD_CARDS}]", wanted), key=len)
    return len(chunk) > 3 and chunk in segment


@lru_cache(maxsize=4096)
def _match(path: tuple[str, ...], glob: tuple[str, ...]) -> bool:
    """Whether some name matches both; `DEEP` and an unknown segment match any number of segments."""
    rows = len(path) + 1
    columns = len(glob) + 1
    reach = [[False] * columns for _ in range(rows)]
    reach[0][0] = True
    for i in range(rows):
        for j in range(columns):
            if not reach[i][j]:
                continue
            many_path = i < len(path) and path[i] in (DEEP, *_HOLES)
            many_glob = j < len(glob) and glob[j] == DEEP
            if many_path:
                reach[i + 1][j] = True
            if many_glob:
                reach[i][j + 1] = True
            if i < len(path) and j < len(glob):
                if many_path:
                    reach[i][j + 1] = True
                if many_glob:
                    reach[i + 1][j] = True
                if many_path or many_glob or _segments_meet(path[i], glob[j]):
                    reach[i + 1][j + 1] = True
            elif i < len(path) and many_glob:
                reach[i + 1][j] = True
    # A later cell may open an earlier one in the same row only to its right, which the loops visit afterwards.
    return reach[-1][-1]


@lru_cache(maxsize=4096)
def _segments_meet(left: str, right: str) -> bool:
    """Whether two segments with wild cards can be one name. An unknown piece inside a segment acts as a star."""
    if left == right:
        return True
    if left[:1] in (STAR, ONE) and right[:1] == ".":
        # A shell's wild card does not match a leading dot.
        return False
    a, b = _stars(left), _stars(right)
    if STAR not in a + b and ONE not in a + b:
        return a == b
    reach = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        i, j = todo.pop()
        steps: list[tuple[int, int]] = []
        if i < len(a) and a[i] == STAR:
            steps += [(i + 1, j), *([(i, j + 1)] if j < len(b) else [])]
        if j < len(b) and b[j] == STAR:
            steps += [(i, j + 1), *([(i + 1, j)] if i < len(a) else [])]
        if i < len(a) and j < len(b) and (a[i] == b[j] or ONE in (a[i], b[j])):
            steps.append((i + 1, j + 1))
        for step in steps:
            if step not in reach:
                reach.add(step)
                todo.append(step)
    return (len(a), len(b)) in reach


def _stars(segment: str) -> str:
    return segment[:256].replace(ANY, STAR).replace(MADE, STAR).replace(UNSET, STAR).replace(DEEP, STAR)
