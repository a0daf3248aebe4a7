"""The report page: whole, self-contained, and safe to open whatever a model wrote."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from evaluation_samples import MakeRollout

from harness_adapters.errors import InfraError
from harness_adapters.evaluation.chart import Series, line_chart
from harness_adapters.evaluation.compare import compare
from harness_adapters.evaluation.from_run import TrainingPoint
from harness_adapters.evaluation.report import RunInfo, pick_examples, render_report, write_report
from harness_adapters.records import Decision, Outcome, Rollout, Verdict

HOSTILE = "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x00\x1b[2J\u202e\ud800"
VOID = {"meta", "img", "br", "circle", "line", "polyline", "link", "input"}
INFO = RunInfo("demo", "SmolLM2-135M-Instruct", "pi", 0, {"learning rate": "3e-4"}, {"torch": "2.13.0"}, ("serve it",))
CURVE = [TrainingPoint(step, 48, 0.2 * step, 0.15 * step, 4 - 0.5 * step) for step in (1, 2, 3)]


class Page(HTMLParser):
    """Tags, attributes and text of a page; raises AssertionError for a tag that is closed out of turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def rollouts(make_rollout: MakeRollout) -> list[Rollout]:
    block = Verdict("c", Decision.BLOCK, "outside-cwd", f"reads {HOSTILE}", "cat")
    return [
        make_rollout(label, f"task-{task}", task % 2 == 0, verdicts=[block] if task == 5 else [], text=HOSTILE)
        for task in range(8)
        for label in ("base", "final")
    ]


def test_the_page_has_every_part_and_is_well_formed(rollouts: list[Rollout]) -> None:
    page = Page(render_report(compare(rollouts), INFO, CURVE, rollouts))
    for part in (
        "SmolLM2-135M-Instruct",
        "learning rate",
        "torch version",
        "2.13.0",
        "serve it",
        "outside-cwd",
        "task-0",
    ):
        assert part in page.words
    assert page.tags.count("svg") == 3
    assert page.tags.count("details") == 6
    assert "No difference in solved held-out tasks" in page.words


def test_hostile_text_stays_text(rollouts: list[Rollout]) -> None:
    info = RunInfo(HOSTILE, HOSTILE, HOSTILE, 0, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, (HOSTILE,))
    page = Page(render_report(compare(rollouts), info, CURVE, rollouts))
    assert not {"script", "img", "iframe", "link", "a", "form", "object"} & set(page.tags)
    assert not any(name.startswith("on") or name in ("src", "href", "style") for name, _ in page.attributes)
    assert "<script>alert(1)</script>" in page.words
    assert not {"\x00", "\x1b", "\u202e"} & set(page.words)


def test_the_page_loads_nothing_from_anywhere(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout("final", "t", text="plain words")]
    text = render_report(compare(rollouts), INFO, CURVE, rollouts)
    assert "default-src 'none'" in text
    assert not any(word in text for word in ("http://", "https://", "url(", "@import", "src="))


def test_a_run_without_training_or_blocked_calls_says_so(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout("base", "t")]
    page = Page(render_report(compare(rollouts), RunInfo("r", "m", "pi", 0), [], rollouts))
    assert "svg" not in page.tags
    assert "None in 1 sessions." in page.words
    assert "Serve the adapter" not in page.words


def test_examples_show_failures_and_blocked_sessions_too(make_rollout: MakeRollout, rollouts: list[Rollout]) -> None:
    states = [(rollout.solved, rollout.blocked) for rollout in pick_examples(rollouts, 3)]
    assert states == [(True, False), (False, False), (False, True)]
    assert {rollout.tags["policy_label"] for rollout in pick_examples(rollouts, 6)} == {"final"}
    training = make_rollout("run-pi-v1", tags={"step": "1"})
    failed = make_rollout("final", outcome=Outcome.INFRA)
    assert pick_examples([training, failed], 3) == []


def test_a_very_long_output_is_cut_and_says_so(make_rollout: MakeRollout) -> None:
    rollouts = [make_rollout("final", "t", text="y" * 10_000)]
    page = Page(render_report(compare(rollouts), INFO, [], rollouts))
    assert "… 6000 more characters" in page.words


def test_the_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path, rollouts: list[Rollout]) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", encoding="utf-8")
    write_report(path, compare(rollouts), INFO, CURVE, rollouts)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path, rollouts: list[Rollout]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfraError, match="cannot write"):
        write_report(tmp_path / "file" / "report.html", compare(rollouts), INFO, CURVE, rollouts)


@pytest.mark.parametrize(
    ("steps", "values"), [([3], [0.0]), ([1, 2], [0.0, 0.0]), ([0, 10], [-2.0, 5.5]), ([1, 2, 3], [1e-9, 1e9, 3.0])]
)
def test_a_chart_keeps_its_points_inside_its_frame(steps: list[int], values: list[float]) -> None:
    page = Page(line_chart(Series("a & b", steps, values)))
    places = {name: [float(value or "") for key, value in page.attributes if key == name] for name in ("cx", "cy")}
    assert len(places["cx"]) == len(values)
    assert all(0 <= x <= 320 for x in places["cx"])
    assert all(0 <= y <= 170 for y in places["cy"])
    assert "a & b" in page.words


def test_a_chart_of_nothing_is_empty_and_of_nan_is_refused() -> None:
    assert line_chart(Series("x", [], [])) == ""
    with pytest.raises(ValueError, match="not finite"):
        line_chart(Series("x", [1], [float("nan")]))
