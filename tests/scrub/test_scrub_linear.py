"""Time stays linear where one thing stands very often, and lines searched together are found as lines alone."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest

from harness_adapters.scrub import Scrubber
from harness_adapters.scrub import scrubber as scrubber_module
from harness_adapters.scrub.finding import RuleFinder, Span, disjoint
from harness_adapters.scrub.rules import RULES

SIZE = 1_000_000
LONGEST_S = 8.0
"""Many times what the slowest of them takes; a step that is quadratic takes minutes."""


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "some plain words, /home/bob/x and a@b.com; ",
        "key: token= basic account ",
        "AKIA ",
        "@",
        "a@b.c@",
        "/home/",
        "password\n",
        '\\"',
    ],
)
def test_a_long_text_of_one_thing_takes_no_longer_than_it_must(unit: str, as_json: bool) -> None:
    text = unit * (SIZE // len(unit))
    data = (json.dumps(text) if as_json else text).encode()
    assert seconds(lambda: Scrubber().scrub(data)) < LONGEST_S


def test_a_keyword_is_not_looked_for_again_and_hides_none_behind_it() -> None:
    secret = "sq0atp-" + "".join(random.Random(4).choices("abcdefghijkmnpqrstuvwxyz23456789", k=22))
    text = b"account basic " * 50_000 + secret.encode()
    spans = [span.value for span in RuleFinder(RULES).spans(text)]
    assert secret.encode() in spans


def test_overlaps_are_settled_in_time_linear_in_their_number() -> None:
    rng = random.Random(1)
    places = [rng.randrange(2_000_000) for _ in range(200_000)]
    group = [Span(place, place + rng.randrange(1, 30), "x", b"v") for place in places]
    assert seconds(lambda: disjoint([group[:100_000], group[100_000:]])) < LONGEST_S


def test_earlier_groups_win_then_longer_spans() -> None:
    first = [Span(5, 8, "a", b""), Span(20, 22, "a", b"")]
    second = [Span(0, 6, "b", b""), Span(8, 12, "b", b""), Span(10, 16, "b", b""), Span(16, 20, "b", b"")]
    won = [span[:3] for span in disjoint([first, second])]
    assert won == [
        (5, 8, "a"),
        (10, 16, "b"),
        (16, 20, "b"),
        (20, 22, "a"),
    ]


@pytest.mark.parametrize("batch", [1, 300])
def test_lines_together_are_scrubbed_as_lines_alone(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = json.dumps({"cwd": "/home/kvoss/x", "deep": json.dumps(["mail k.voss@firma-voss.de"])})
    lines = [
        '{"a": "nothing"}',
        json.dumps({"arguments": inner, "t": "/home/kvoss"}),
        "",
        json.dumps({"password": ""}),
        '{"value": "kite-Zebra77x", "x": []}',
        "no JSON: password=kite-Zebra77x",
        "",
        "[]",
        json.dumps({"t": "Authorization: Bearer " + "aB3dE5fG7hI9jK1lM3nO5pQ7"}),
        json.dumps([1, {"k": "x@firma-voss.de"}]),
    ] * 3
    data = "\n".join(lines).encode()
    together = Scrubber().scrub(data)
    assert {finding.line for finding in together.findings} >= {2, 9, 10, 12, 30}
    monkeypatch.setattr(scrubber_module, "_BATCH", batch)
    assert Scrubber().scrub(data) == together


def test_hundreds_of_values_learnt_in_one_run_are_found_without_a_word_from_the_matcher(
    capfd: pytest.CaptureFixture[str],
) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    scrubber = Scrubber()
    tokens = ["ghp_" + "".join(letters[(n * 31 + k * k * 7 + k * n) % 62] for k in range(36)) for n in range(150)]
    started = time.process_time()
    for token in tokens:
        scrubbed = scrubber.scrub(json.dumps({"role": "tool", "content": f"token {token} was used"}).encode()).data
        assert token.encode() not in scrubbed
    assert time.process_time() - started < 30
    assert "DFA" not in capfd.readouterr().err


@pytest.mark.parametrize("unit", ["secret = '{} ' ", "{}/home/ab/", "password is {} "])
def test_what_stands_very_often_is_judged_once(unit: str) -> None:
    unit = unit.format("Xq9z81Lm")
    text = unit * (SIZE // len(unit))
    assert seconds(lambda: Scrubber().scrub(text.encode())) < 4


def test_the_same_value_in_other_surroundings_is_judged_anew() -> None:
    texts = ["secret = 'kq9z81Lm'", "tokens_secret_path = 'kq9z81Lm'", "secret = 'kq9z81Lm'"]
    spans = list(RuleFinder(RULES).spans("\x00".join(texts).encode()))
    assert {span.start for span in spans if span.value == b"kq9z81Lm"} == {10, 62}
