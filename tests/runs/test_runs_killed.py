"""Runs that are killed again and again end as if nobody had touched them: same rollouts, same steps, same weights.

`killed_runs.py` makes the runs, with every part real; here they are compared with the one that was left alone. The seed
of the kills is new each time and printed; `KILL_SEED` in the environment sets it, to see a failure again.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from harness_adapters.evaluation.from_run import load_rollouts, recompute
from harness_adapters.events import read_events, standing
from harness_adapters.records import Outcome, Rollout
from harness_adapters.rollouts.producer import unfit
from harness_adapters.runs.directory import RunDirectory

KILLS = 30

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Told:
    """What the program told, the runs by name, and the folders that were the runs' alone."""

    folder: Path
    undisturbed: Path
    killed: list[Path]
    busy: list[Path]
    harmed: dict[str, Path]
    lives: list[dict[str, Any]]
    left: int

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("killed")
    for name in ("tmp", "cache"):
        (folder / name).mkdir()
    seed = os.environ.get("KILL_SEED") or str(random.SystemRandom().randrange(1 << 30))
    print(f"KILL_SEED={seed}")
    environment = {
        **os.environ,
        "TMPDIR": str(folder / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "HARNESS_ADAPTERS_CACHE": str(folder / "cache"),
        # No thread may start with an import: the program forks.
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    program = [sys.executable, str(Path(__file__).with_name("killed_runs.py")), str(folder), seed, str(KILLS)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=1400, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr + "".join(log.read_text()[-2000:] for log in folder.glob("*.log"))
    data = json.loads((folder / "told.json").read_text())
    assert data["threads"] == 1
    killed, busy = ([Path(path) for path in data[name]] for name in ("killed", "busy"))
    harmed = {name: Path(path) for name, path in data["harmed"].items()}
    return Told(folder, Path(data["undisturbed"]), killed, busy, harmed, data["lives"], data["left"])


def steps(run: Path) -> dict[int, dict[str, Any]]:
    """The policy steps that stand, by number; how long they took left out."""
    events = [event for event in standing(read_events(run / "events.jsonl")) if event["kind"] == "policy_step"]
    timed = ("seq", "time")
    for event in events:
        for clock in ("seconds", "cpu_seconds"):
            (event["metrics"] or {}).pop(clock, None)
    return {event["step"]: {key: event[key] for key in event if key not in timed} for event in events}


def trained(run: Path) -> list[str]:
    return [name for step in steps(run).values() for name in step["trained"]]


def without_policy(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "policy"}


def tokens(rollouts: list[Rollout]) -> dict[str, Any]:
    """What each session said and got, by id."""
    return {
        rollout.id: (rollout.task, rollout.reward, [call.completion_ids for call in rollout.calls])
        for rollout in rollouts
    }


def assert_equal_weights(one: Path, other: Path) -> None:
    weights = [load_file(folder / "adapter_model.safetensors") for folder in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_as_many_lives_as_asked_for_were_killed_and_every_run_came_to_its_end(told: Told) -> None:
    killed = [life for life in told.lives if life["status"] == -9]
    assert len(killed) >= KILLS, "too many lives ended before their kill"
    assert {life["kind"] for life in killed} == {"timed", "aimed"}
    assert all(life["status"] == 0 for life in told.lives if life["kind"] == "whole")
    assert {life["status"] for life in told.lives} <= {0, -9}


def test_the_undisturbed_run_had_every_stage_and_learned_from_real_differences(told: Told) -> None:
    events = standing(read_events(told.undisturbed / "events.jsonl"))
    assert {event["stage"] for event in events if event["kind"] == "stage_done"} == {"record", "warm-start", "evaluate"}
    assert [event["number"] for event in events if event["kind"] == "published"] == [0, 2, 4]
    assert len(trained(told.undisturbed)) >= 8
    rollouts = load_rollouts(told.undisturbed, "training")
    assert {rollout.reward.verifier for rollout in rollouts if rollout.reward} == {0.0, 1.0}
    assert any(event["refills"] for event in events if event["kind"] == "sampled"), "no refill was needed"
    first = load_file(told.undisturbed / "adapters" / "v0" / "adapter_model.safetensors")
    last = load_file(told.undisturbed / "adapter" / "adapter_model.safetensors")
    assert any(not torch.equal(first[name], last[name]) for name in first)


def test_every_rollout_of_the_undisturbed_run_is_trained_exactly_once_and_no_other(told: Told) -> None:
    expected = trained(told.undisturbed)
    assert len(set(expected)) == len(expected)
    for run in told.killed:
        assert trained(run) == expected
        assert [without_policy(step) for step in steps(run).values()] == [
            without_policy(step) for step in steps(told.undisturbed).values()
        ]


def test_every_session_was_played_to_the_same_tokens_and_none_was_lost_or_failed(told: Told) -> None:
    for kind in ("training", "eval"):
        expected = load_rollouts(told.undisturbed, kind)
        for run in told.killed:
            found = load_rollouts(run, kind)
            assert tokens(found) == tokens(expected)
            assert {rollout.outcome for rollout in found} == {Outcome.GRADED}
        logged = [event["id"] for event in read_events(run / "events.jsonl") if event["kind"] == "rollout"]
        assert len(set(logged)) == len(logged)


def test_weights_are_equal_bit_for_bit_at_every_version_and_at_the_end(told: Told) -> None:
    for run in told.killed:
        names = {path.name for path in (run / "adapters").glob("v*/")}
        assert names == {path.name for path in (told.undisturbed / "adapters").glob("v*/")} == {"v0", "v2", "v4"}
        for name in (*(f"adapters/{name}" for name in names), "adapter"):
            assert_equal_weights(run / name, told.undisturbed / name)


def test_what_was_trained_is_what_was_played_whatever_order_sessions_end_in(told: Told) -> None:
    for run in [told.undisturbed, *told.killed, *told.busy]:
        groups: dict[str, list[Rollout]] = {}
        for rollout in load_rollouts(run, "training"):
            groups.setdefault(rollout.group, []).append(rollout)
        planned = {
            f"s{step}-g{number}"
            for step in steps(run)
            for number in range(len(json.loads((run / "plans" / f"s{step:05d}.json").read_text())["groups"]))
        }
        assert groups.keys() == planned
        fit = [rollout.id for group in groups.values() if not unfit(group) for rollout in group]
        assert sorted(trained(run)) == sorted(fit)
        assert len(set(fit)) == len(fit) > 0


def test_evaluation_and_report_are_whole(told: Told) -> None:
    for run in [*told.killed, *told.busy]:
        assert recompute(run).warnings == ()
        assert (run / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_no_process_no_lock_and_no_unfinished_file_is_left(told: Told) -> None:
    assert told.left == 0
    assert list((told.folder / "tmp").iterdir()) == []
    assert [path.name for path in (told.folder / "cache").rglob(".*")] == [".lock"]
    for run in [*told.killed, *told.busy, *told.harmed.values()]:
        assert {path.name for path in run.rglob(".*")} == {".lock", ".done"}
        with RunDirectory.resume(run) as again:
            assert list(again.swept) == []


def test_with_the_newest_checkpoint_damaged_the_one_before_it_is_used_and_both_are_named(told: Told) -> None:
    name = "harm_newest_checkpoint"
    run, said = told.harmed[name], told.said(name)
    assert "checkpoint step-00010 is passed over: " in said
    assert "optimizer.safetensors is not what was written" in said
    assert "going on from checkpoint step-00009" in said
    assert_nothing_was_played_and_the_end_is_the_same(told, run)


def test_without_a_good_checkpoint_a_run_takes_its_steps_again_on_its_own_rollouts(told: Told) -> None:
    name = "harm_every_checkpoint"
    run, said = told.harmed[name], told.said(name)
    assert said.count("is passed over: ") == 2
    assert "begins again from its recorded sessions" in said
    assert_nothing_was_played_and_the_end_is_the_same(told, run)


def assert_nothing_was_played_and_the_end_is_the_same(told: Told, run: Path) -> None:
    assert list(steps(run).values()) == list(steps(told.undisturbed).values())
    assert_equal_weights(run / "adapter", told.undisturbed / "adapter")
    assert {path.name for path in (run / "set-aside").iterdir()} == {"checkpoints"}
    for kind in ("oracle", "rollouts", "eval"):
        files = [
            {path.name: path.read_bytes() for path in (place / kind).iterdir()} for place in (run, told.undisturbed)
        ]
        assert files[0] == files[1]


def test_weights_that_come_out_otherwise_get_a_number_never_used_and_sessions_of_their_own(told: Told) -> None:
    run = told.harmed["change_version_0"]
    assert_equal_weights(run / "adapters" / "v1", told.undisturbed / "adapters" / "v0")
    assert_equal_weights(run / "adapters" / "v0", told.undisturbed / "adapters" / "v4")
    policies = [step["policy"].rpartition("-")[2] for step in steps(run).values()]
    assert policies == ["v1", "v1", "v2", "v2"]
    by_id = {rollout.id: rollout for rollout in load_rollouts(run, "training")}
    for step in steps(run).values():
        assert {by_id[name].policy for name in step["trained"]} == {step["policy"]}
    moved = {path.name for path in (run / "set-aside" / "rollouts").iterdir()}
    assert moved == {f"{name}.json" for name in by_id if name.startswith(("s1-", "s2-"))}
    assert trained(run) == trained(told.undisturbed)
    assert_equal_weights(run / "adapter", told.undisturbed / "adapter")
    assert recompute(run).warnings == ()
