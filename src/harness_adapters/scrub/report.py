"""What a run found and where: kinds, counts and places. Never a value: what is shown here may be passed on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from harness_adapters.scrub.scrubber import Finding

_LONGEST_PATH = 160


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file: its scrubbed name, its size in bytes before, what was found, and the lines that were no JSON."""

    name: str
    size: int
    findings: tuple[Finding, ...]
    text_lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run. `left_out` are files of the given folders that were not taken, with the reason."""

    files: tuple[FileReport, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def kinds(self) -> Counter[str]:
        """How often each kind was replaced."""
        return Counter(finding.kind for file in self.files for finding in file.findings)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "kinds": dict(sorted(self.kinds.items())),
            "files": [
                {
                    "file": file.name,
                    "bytes": file.size,
                    "text_lines": list(file.text_lines),
                    "places": [{"kind": f.kind, "line": f.line, "path": f.path[:_LONGEST_PATH]} for f in file.findings],
                }
                for file in self.files
            ],
            "left_out": [{"file": name, "why": why} for name, why in self.left_out],
        }

    def table(self) -> list[str]:
        """Lines for a person: one a kind with its count, the number of files, and the first place."""
        rows = [("kind", "count", "files", "first place")]
        for kind, count in self.kinds.most_common():
            holding = [file for file in self.files if any(f.kind == kind for f in file.findings)]
            first = next(f for f in holding[0].findings if f.kind == kind)
            place = f"{holding[0].name}:{first.line} {first.path[:_LONGEST_PATH]}".rstrip()
            rows.append((kind, str(count), str(len(holding)), place))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in rows]
