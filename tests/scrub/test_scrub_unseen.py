"""Secrets and decoys by somebody who had not seen the rules. They stand in the file as recipes, since a repository
should hold nothing that looks like a live secret; each run makes them anew from a seed."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest

from harness_adapters.scrub import Scrubber

CASES = [json.loads(line) for line in Path(__file__).with_name("unseen.jsonl").read_text("utf-8").splitlines()]
ALPHABETS = {
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "alnum": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "base64": string.ascii_letters + string.digits + "+/",
    "base64url": string.ascii_letters + string.digits + "_-",
    "digits": string.digits,
    "base32": string.ascii_uppercase + "234567",
    "print": string.ascii_letters + string.digits + "!@#%^&*-_+=",
}


def made(case: dict[str, Any], rng: random.Random) -> str:
    """The secret or the decoy of a case."""
    return "".join(
        size if kind == "literal" else "".join(rng.choice(ALPHABETS[kind]) for _ in range(size))
        for kind, size in case["pieces"]
    )


def survives(case: dict[str, Any], seed: int, scrubber: Scrubber) -> bool:
    """Whether the text that matters is still there after scrubbing the session that holds it."""
    value = made(case, random.Random(f"{seed}:{case['id']}"))
    text = case["text"].replace("{0}", value)
    message = {"role": "tool", "tool_call_id": "c1", "content": text}
    data = scrubber.scrub(json.dumps(message).encode()).data
    return value in json.loads(data)["content"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nearly_every_secret_goes_and_nearly_nothing_else(seed: int) -> None:
    scrubber = Scrubber(keep_images=True)
    kept = [case["id"] for case in CASES if case["expect"] == "secret" and survives(case, seed, scrubber)]
    lost = [case["id"] for case in CASES if case["expect"] == "keep" and not survives(case, seed, scrubber)]
    secrets = sum(case["expect"] == "secret" for case in CASES)
    assert len(kept) <= 0.05 * secrets, kept
    assert len(lost) <= 0.02 * (len(CASES) - secrets), lost
