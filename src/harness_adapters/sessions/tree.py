"""The main line of a log that is a tree: entries name their parent, and an abandoned branch stays in the file.

The main line runs from the last entry back to the root. Asymmetry: an entry whose parent is not in the file (its line
was damaged, or the file is a part) continues the entry written before it; one that names no parent is a root.
"""

from __future__ import annotations

from collections.abc import Sequence


def main_line(links: Sequence[tuple[str, str | None]]) -> set[str]:
    """Ids on the path from the last of `links` (id, parent id; in file order) to its root."""
    if not links:
        return set()
    parents: dict[str, str | None] = {}
    known = {own for own, _ in links}
    before: str | None = None
    for own, parent in links:
        parents.setdefault(own, before if parent is not None and parent not in known else parent)
        before = own
    path: set[str] = set()
    current: str | None = links[-1][0]
    while current is not None and current not in path:
        path.add(current)
        current = parents.get(current)
    return path
