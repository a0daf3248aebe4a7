"""Every number of a run: pydantic models, TOML files, `--set a.b=c`. The defaults are the published recipe.

Invariants
- An unknown key is an error that names the nearest known one; nothing is silently ignored.
- A resolved configuration written with `to_toml` reads back equal.

Presets are TOML files beside this package (`presets/`); `tiny-cpu` is what the embedded demo uses.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness_adapters.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

PRESETS = Path(__file__).parent / "presets"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelConfig(_Section):
    """Which base weights. `path` is a transformers folder; empty means the packaged SmolLM2-135M-Instruct."""

    path: str = ""
    chat_format: str = "auto"


class LoraConfig(_Section):
    rank: int = Field(32, ge=1, le=512)
    alpha: float = Field(64.0, gt=0)


class SamplingConfig(_Section):
    """Set by the gateway whatever the harness asks for."""

    temperature: float = Field(0.8, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: int = Field(32_768, ge=1)


class SessionConfig(_Section):
    """`seconds` is one deadline over boot, agent, verify and clean-up; `context` bounds a call's prompt and completion
    together, in tokens, below what the model itself can hold."""

    context: int = Field(131_072, ge=256)
    model_calls: int = Field(30, ge=1)
    seconds: float = Field(1200.0, gt=0)
    infra_retries: int = Field(2, ge=0)
    memory_mb: int = Field(2048, ge=64)
    processes: int = Field(256, ge=8)


class RewardConfig(_Section):
    bonus: float = Field(0.1, ge=0)
    bonus_calls: int = Field(15, ge=1)


class ProducerConfig(_Section):
    """`groups_per_step` tasks with `group_size` rollouts each; groups without reward spread are refilled."""

    group_size: int = Field(8, ge=2)
    groups_per_step: int = Field(8, ge=1)
    in_flight: int = Field(48, ge=1)
    max_refills: int = Field(8, ge=0)


class TrainerConfig(_Section):
    """GRPO with a clipped ratio and a dual clip for negative advantages.

    The learning rate rises over the first `warmup_steps` steps, since Adam's first steps move every weight alike,
    whatever its gradient is worth, and falls in a line to `final_fraction` of itself at the last step.
    `detach_prefix` stops the gradient at the keys and values of the prompt that all rows share: about 1.4 times as fast
    on a CPU, an approximation (`docs/architecture.md` gives its measured angle to the exact gradient).
    `keep_per_group` trains only that many best and worst rollouts of a group (0: all); their advantages no longer sum
    to zero, which pushes probability down where most of a group is solved.
    """

    steps: int = Field(200, ge=0)
    learning_rate: float = Field(1e-5, gt=0)
    warmup_steps: int = Field(0, ge=0)
    final_fraction: float = Field(1.0, gt=0, le=1)
    clip_low: float = Field(0.2, gt=0)
    clip_high: float = Field(0.2, gt=0)
    dual_clip: float = Field(3.0, gt=1)
    grad_norm: float = Field(1.0, gt=0)
    max_unique_tokens: int = Field(65_536, ge=64)
    detach_prefix: bool = False
    keep_per_group: int = Field(0, ge=0)


class PublishConfig(_Section):
    """A new adapter version every `every` steps; the alias flips only when the canary passes."""

    every: int = Field(10, ge=1)
    canary_tokens: int = Field(48, ge=4)
    canary_threshold: float = Field(0.02, gt=0)


class WarmStartConfig(_Section):
    """Supervised steps on oracle sessions that the real harness played. `steps = 0` starts from the base."""

    steps: int = Field(0, ge=0)
    sessions_per_step: int = Field(6, ge=1)
    learning_rate: float = Field(1.5e-3, gt=0)
    final_fraction: float = Field(0.1, gt=0, le=1)
    careful_share: float = Field(0.5, ge=0, le=1)


class TasksConfig(_Section):
    """`source` is `first-steps` (made at the start of the run) or a folder of Harbor task directories.

    Policies are judged at the end on the test set, `heldout` and `unseen`; with `evaluate_on = "dev"`, for tuning, on
    `dev` tasks, and the test set is not even made. `evaluation_seed` draws the tasks they are judged on, so that runs
    of several seeds share them; where it is not set the run's own seed does.
    """

    source: str = "first-steps"
    train: int = Field(96, ge=1)
    heldout: int = Field(40, ge=1)
    unseen: int = Field(12, ge=0)
    dev: int = Field(40, ge=1)
    evaluate_on: Literal["heldout", "dev"] = "heldout"
    evaluation_seed: int | None = Field(None, ge=0, le=2**31 - 1)

    @property
    def judged(self) -> dict[str, int]:
        """The splits that policies are judged on, and how many first-steps tasks of each are made."""
        return {"dev": self.dev} if self.evaluate_on == "dev" else {"heldout": self.heldout, "unseen": self.unseen}


class FrozenConfig(_Section):
    """What a commit has fixed before the run. `test_set` is the digest that `study --dry-run` prints; a run whose
    held-out and unseen tasks have another one does not start. Empty: not fixed."""

    test_set: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$")


class EvalConfig(_Section):
    attempts: int = Field(1, ge=1)
    confidence: float = Field(0.95, gt=0.5, lt=1)


class EngineConfig(_Section):
    """`kind` is `embedded`. `max_batch` sequences decode together; `prefix_cache_mb` bounds the shared prefixes;
    `threads` are torch's in a trainer's turn, 0 for as many as torch takes by itself."""

    kind: str = "embedded"
    max_batch: int = Field(8, ge=1)
    prefix_cache_mb: int = Field(1024, ge=0)
    threads: int = Field(0, ge=0)


class RunConfig(_Section):
    """One run, whole. Every key has the published recipe's value unless a preset says otherwise."""

    name: str = Field("run", pattern=r"^[a-z0-9][a-z0-9_.-]{0,40}$")
    harness: str = "pi"
    seed: int = Field(0, ge=0, le=2**31 - 1)
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    sampling: SamplingConfig = SamplingConfig()
    session: SessionConfig = SessionConfig()
    reward: RewardConfig = RewardConfig()
    producer: ProducerConfig = ProducerConfig()
    trainer: TrainerConfig = TrainerConfig()
    publish: PublishConfig = PublishConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    tasks: TasksConfig = TasksConfig()
    evaluation: EvalConfig = EvalConfig()
    engine: EngineConfig = EngineConfig()
    frozen: FrozenConfig = FrozenConfig()


def load_config(
    path: Path | None = None,
    *,
    preset: str = "",
    overrides: Sequence[str] = (),
    base: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Layer defaults, a preset, a TOML file and `a.b=c` overrides, later ones winning.

    A file may name its preset with a top-level `preset = "tiny-cpu"`. Raises ConfigError, naming the nearest known
    key for an unknown one.
    """
    data: dict[str, Any] = dict(base or {})
    from_file = read_toml(path) if path is not None else {}
    preset = str(from_file.pop("preset", preset))
    if preset:
        data = _merge(_read_preset(preset), data)
    data = _merge(data, from_file)
    for override in overrides:
        data = _merge(data, _parse_override(override))
    return validate(RunConfig, data, "configuration")


def validate(model: type[M], data: Mapping[str, Any], what: str) -> M:
    """`model` from `data`; a ConfigError in one line for the first thing wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"unknown key {place!r} in the {what}", _nearest_hint(model, first["loc"])) from None
        raise ConfigError(f"{what}: {place or 'top level'}: {first['msg']}", f"it is {first['input']!r}") from None


def to_toml(config: RunConfig) -> str:
    """The resolved configuration as TOML that `load_config` reads back equal."""
    return toml_text(config.model_dump(exclude_none=True))


def toml_text(data: Mapping[str, Any]) -> str:
    """TOML of plain values and of tables that hold nothing but plain values."""
    lines: list[str] = []
    tables: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in data.items():
        if isinstance(value, Mapping):
            tables.append((key, value))
        else:
            lines.append(f"{key} = {_toml_value(value)}")
    for name, table in tables:
        lines += ["", f"[{name}]", *(f"{key} = {_toml_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    """JSON's form of a scalar or a list of them, which TOML shares but for escaped surrogates and a bare DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _nearest_hint(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    section: Any = model
    for part in location[:-1]:
        section = section.model_fields[str(part)].annotation
    known = list(section.model_fields)
    elsewhere = _places_of(str(location[-1]), model)
    if elsewhere:
        return f"did you mean {' or '.join(map(repr, elsewhere))}? known keys: {', '.join(known)}"
    close = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.0)
    return f"did you mean {close[0]!r}? known keys: {', '.join(known)}" if close else ""


def _places_of(leaf: str, model: type[BaseModel]) -> list[str]:
    """Where a key of exactly this name stands, by its dotted name."""
    found = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and leaf in inner.model_fields:
            found.append(f"{name}.{leaf}")
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The keys in a TOML file. Raises ConfigError for one that cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", "check the path") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", "mend the line it names") from None


def _read_preset(name: str) -> dict[str, Any]:
    path = PRESETS / f"{name}.toml"
    if len(name) > 80 or not path.is_file():
        known = ", ".join(sorted(p.stem for p in PRESETS.glob("*.toml")))
        raise ConfigError(f"no preset {name[:80]!r}", f"known presets: {known}")
    return read_toml(path)


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, raw = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {text!r} is not KEY=VALUE", "for example --set trainer.steps=20")
    try:
        value: Any = tomllib.loads(f"v = {raw}")["v"]
    except (ValueError, RecursionError):
        value = raw
    result: dict[str, Any] = {}
    inner = result
    *parents, last = key.strip().split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    return result


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
