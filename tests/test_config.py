"""The configuration: layers in order, nothing ignored, one line for each mistake, and it reads back equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.config import PRESETS, RunConfig, load_config, to_toml, validate
from harness_adapters.errors import ConfigError

NAMES = sorted(path.stem for path in PRESETS.glob("*.toml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_loads_and_reads_back_equal(name: str, tmp_path: Path) -> None:
    config = load_config(preset=name)
    assert load_config(write(tmp_path, to_toml(config))) == config


def test_the_defaults_are_the_published_recipe() -> None:
    config = load_config()
    assert (config.lora.rank, config.trainer.learning_rate, config.producer.group_size) == (32, 1e-5, 8)
    assert (config.sampling.temperature, config.sampling.max_tokens) == (0.8, 32_768)
    assert (config.reward.bonus, config.reward.bonus_calls) == (0.1, 15)
    assert (config.session.model_calls, config.session.seconds) == (30, 1200.0)
    assert (config.publish.every, config.producer.in_flight) == (10, 48)


def test_later_layers_win(tmp_path: Path) -> None:
    path = write(tmp_path, 'preset = "tiny-cpu"\n[trainer]\nsteps = 7\nlearning_rate = 2e-4\n')
    config = load_config(path, overrides=["trainer.learning_rate=5e-4", "trainer.learning_rate=6e-4", "name=mine"])
    assert (config.trainer.steps, config.trainer.learning_rate, config.name) == (7, 6e-4, "mine")
    assert config.trainer.keep_per_group == load_config(preset="tiny-cpu").trainer.keep_per_group
    assert load_config(path, preset="no-such-preset").trainer.steps == 7


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("seed=3", "seed", 3),
        ("harness=pi", "harness", "pi"),
        ('harness="pi"', "harness", "pi"),
        ("trainer.detach_prefix=true", "trainer.detach_prefix", True),
        ("model.path=/a folder/with=signs", "model.path", "/a folder/with=signs"),
        ("model.path=", "model.path", ""),
    ],
)
def test_an_override_is_read_as_toml_or_else_as_text(override: str, key: str, value: Any) -> None:
    found: Any = load_config(overrides=[override])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_a_run_judges_on_the_test_set_or_on_development_tasks_and_never_on_both() -> None:
    usual = load_config(overrides=["tasks.heldout=7", "tasks.unseen=3"]).tasks
    assert usual.judged == {"heldout": 7, "unseen": 3}
    assert usual.evaluation_seed is None
    tuning = load_config(overrides=["tasks.evaluate_on=dev", "tasks.dev=5", "tasks.evaluation_seed=9"]).tasks
    assert (tuning.judged, tuning.evaluation_seed) == ({"dev": 5}, 9)


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("trainer.learning_rat=1", "learning_rate"),
        ("sampling.temprature=1", "temperature"),
        ("trainr.steps=1", "trainer"),
        ("sede=1", "seed"),
        ("producer.groupsize=4", "group_size"),
        ("steps=4", "trainer.steps' or 'warm_start.steps"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(override: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown key '.*' in the configuration \(did you mean '{nearest}'\?"):
        load_config(overrides=[override])


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("trainer.steps=many", "trainer.steps"),
        ("trainer.steps=-1", "trainer.steps"),
        ("trainer.steps=1.5", "trainer.steps"),
        ("trainer=3", "trainer"),
        ("seed.deep=1", "seed"),
        ("sampling.temperature=0", "sampling.temperature"),
        ("sampling.temperature=nan", "sampling.temperature"),
        ("sampling.temperature=inf", "sampling.temperature"),
        ("evaluation.confidence=1.0", "evaluation.confidence"),
        ("tasks.evaluate_on=test", "tasks.evaluate_on"),
        ("tasks.evaluation_seed=-1", "tasks.evaluation_seed"),
        ("frozen.test_set=abc", "frozen.test_set"),
        ("frozen.test_set=sha256:12", "frozen.test_set"),
        ("name=Has Spaces", "name"),
        ("name=../up", "name"),
        ("name=[1]", "name"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_place(override: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[override])
    assert str(caught.value).startswith(f"configuration: {place}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000])
def test_an_override_too_large_to_be_read_is_refused_like_any_wrong_value(value: str) -> None:
    with pytest.raises(ConfigError, match="configuration: seed: "):
        load_config(overrides=[f"seed={value}"])


@pytest.mark.parametrize("override", ["steps", "=3", ""])
def test_an_override_that_is_no_pair_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="is not KEY=VALUE"):
        load_config(overrides=[override])


@pytest.mark.parametrize("override", ["a..b=1", ".=1", "trainer.=1", "trainer.steps.x=1"])
def test_an_override_with_a_broken_path_is_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        load_config(overrides=[override])


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no preset 'tiny' \(known presets: .*tiny-cpu"):
        load_config(preset="tiny")
    with pytest.raises(ConfigError, match="no preset 'aaa"):
        load_config(preset="a" * 5000)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[trainer\n", "is not TOML"),
        (b"name = '\xff'\n", "is not TOML"),
        (b"[trainer]\nsteps = 1\nsteps = 2\n", "TOML"),
        (b"seed = " + b"9" * 5000 + b"\n", "is not TOML"),
        (b"seed = " + b"[" * 5000 + b"\n", "is not TOML"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        load_config(tmp_path / "none.toml")


positive = st.floats(min_value=1e-12, max_value=1e12, allow_nan=False)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=80, deadline=None)
@given(
    path=text,
    temperature=positive,
    top_p=st.floats(min_value=0, max_value=1, exclude_min=True),
    seed=st.integers(0, 2**31 - 1),
    rank=st.integers(1, 512),
    rate=positive,
    detach=st.booleans(),
    confidence=st.floats(0.5, 1, exclude_min=True, exclude_max=True),
    evaluation_seed=st.none() | st.integers(0, 2**31 - 1),
)
def test_any_configuration_written_as_toml_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    path: str,
    temperature: float,
    top_p: float,
    seed: int,
    rank: int,
    rate: float,
    detach: bool,
    confidence: float,
    evaluation_seed: int | None,
) -> None:
    data = {
        "seed": seed,
        "model": {"path": path},
        "lora": {"rank": rank},
        "sampling": {"temperature": temperature, "top_p": top_p},
        "trainer": {"learning_rate": rate, "detach_prefix": detach},
        "evaluation": {"confidence": confidence},
        "tasks": {"evaluation_seed": evaluation_seed},
    }
    config = validate(RunConfig, data, "configuration")
    file = tmp_path_factory.mktemp("config") / "config.resolved.toml"
    file.write_bytes(to_toml(config).encode())
    assert load_config(file) == config
