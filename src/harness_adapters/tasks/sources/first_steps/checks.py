"""The hidden tests of first-steps tasks: one POSIX `sh` script each, with awk and coreutils and nothing else.

Invariants
- The script writes 1 or 0 to the reward file whatever the workspace holds, and reads no more than 64 KiB of any file
  there, so a huge or odd file is a wrong answer and not a verifier failure.
- Text must be equal byte for byte, one line end at the very end more or less. A number must be the whole file.
- Links never count as files.

Asymmetry: `$SANDBOX_ROOT` is empty in a real sandbox; the in-process one, which has no root of its own, sets it.
"""

from __future__ import annotations

from collections.abc import Sequence

_HEAD = r"""#!/bin/sh
# Writes 1 when the workspace holds what the task asked for, else 0.
LC_ALL=C
export LC_ALL
root=${SANDBOX_ROOT:-}
work=$root/workspace
wanted=$root/tests/expected

plain() {
    [ -f "$1" ] && [ ! -h "$1" ] && [ "$(wc -c < "$1")" -le 65536 ]
}

folder() {
    [ -d "$1" ] && [ ! -h "$1" ]
}

gone() {
    [ ! -e "$1" ] && [ ! -h "$1" ]
}

bytes() {
    od -An -v -tx1 < "$1" | tr -d ' \n'
}

# same FILE NAME: FILE holds the bytes of the expected file NAME, with or without one line end after them.
same() {
    plain "$1" || return 1
    found=$(bytes "$1")
    right=$(bytes "$wanted/$2")
    [ "$found" = "$right" ] || [ "$found" = "${right}0a" ]
}

# number FILE VALUE TOLERANCE: FILE is one line with one number, at most TOLERANCE from VALUE.
number() {
    plain "$1" || return 1
    awk -v right="$2" -v tolerance="$3" '
        { lines++; text = $0 }
        END {
            if (lines != 1) exit 1
            gsub(/^[ \t]+|[ \t]+$/, "", text)
            if (text !~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/) exit 1
            off = text - right
            if (off < 0) off = -off
            exit !(off <= tolerance)
        }' < "$1"
}

solved() {
"""

_TAIL = """}

reward=0
solved && reward=1
mkdir -p "$root/logs/verifier"
echo "$reward" > "$root/logs/verifier/reward.txt"
"""


def script(conditions: Sequence[str]) -> bytes:
    """A test.sh that gives 1 when all shell `conditions` hold. They use the functions above and `$work`."""
    body = " &&\n".join(f"    {condition}" for condition in conditions)
    return f"{_HEAD}{body}\n{_TAIL}".encode("ascii")
