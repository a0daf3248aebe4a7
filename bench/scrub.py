"""Megabytes a second that scrub reads, by CPU time: `python bench/scrub.py FOLDER [--json]`.

Each file is scrubbed `--repeats` times by one scrubber, as a run would, after one pass that builds the matchers;
the median counts. `--home NAME` also replaces a user name that stands in nearly every line, the dear case: lines that
change are taken apart, written and looked at again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from harness_adapters.scrub import Identity, Scrubber


def measured(data: bytes, scrubber: Scrubber, repeats: int) -> float:
    """Median CPU seconds of one scrub."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        scrubber.scrub(data)
        times.append(time.process_time() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", default="", metavar="NAME", help="a user name to replace everywhere")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    scrubber = Scrubber(Identity(own={args.home.encode(): "user"} if args.home else {}))
    paths = sorted(path for path in args.folder.rglob("*") if path.is_file() and path.stat().st_size)
    if not paths:
        raise SystemExit(f"scrub.py: {args.folder}: no files there; give a folder that holds session files")
    rows = []
    for path in paths:
        data = path.read_bytes()
        scrubber.scrub(data)
        seconds = measured(data, scrubber, args.repeats)
        rows.append({"file": path.name, "bytes": len(data), "seconds": seconds, "mb_s": len(data) / 1e6 / seconds})
    size, seconds = sum(row["bytes"] for row in rows), sum(row["seconds"] for row in rows)
    total = {"file": "all", "bytes": size, "seconds": seconds, "mb_s": size / 1e6 / seconds}
    if args.json:
        print(json.dumps({"files": rows, "total": total}, indent=1))
        return
    for row in [*rows, total]:
        print(f"{row['file']:<40} {row['bytes']:>11,} B {row['seconds']:>8.3f} s {row['mb_s']:>7.1f} MB/s")


if __name__ == "__main__":
    main()
