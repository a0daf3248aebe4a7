"""A study read back: from its directory, or from the export of its sessions.

Layout: `<study>/study.resolved.toml` is the study's file with every key; each other folder in it that holds a
`config.resolved.toml` is the run of one seed.

Invariant: both ways give the same `Study`, and so the same report.

Asymmetry: what is missing is told as a gap (`Study.gaps`); what contradicts itself is an error: two runs of one seed, a
run of a seed or a test set that is not the study's, several harnesses.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from harness_adapters.errors import RunError
from harness_adapters.evaluation.export import read_export
from harness_adapters.evaluation.from_run import load_evaluation, read_confidence
from harness_adapters.evaluation.study import Study, StudyFacts
from harness_adapters.storage import sha256_file

STUDY = "study.resolved.toml"
_RUN = "config.resolved.toml"


def read_study(path: Path) -> Study:
    """The study in a directory, or in the file that `export.write_export` wrote. Raises RunError."""
    if not path.exists():
        raise RunError(f"no study {path}", "name a study's directory, or the file that --export wrote")
    study = _read_directory(path) if path.is_dir() else read_export(path)
    if not study.runs:
        raise RunError(
            f"the study {path} has no evaluated session",
            "every run evaluates itself at its end: go on with it by `study --resume`",
        )
    return study


def run_folders(study_dir: Path, seeds: tuple[int, ...]) -> dict[int, Path]:
    """The run directory of each seed that has one. Raises RunError for two of one seed, or one of no seed of these."""
    found: dict[int, Path] = {}
    for config in sorted(study_dir.glob(f"*/{_RUN}")):
        seed = _toml(config).get("seed")
        if seed not in seeds:
            raise RunError(f"{config.parent} is the run of seed {seed}, which is not the study's", "move it away")
        if seed in found:
            raise RunError(f"{found[seed]} and {config.parent} are both of seed {seed}", "move one of the two away")
        found[seed] = config.parent
    return {seed: found[seed] for seed in seeds if seed in found}


def _read_directory(path: Path) -> Study:
    file = path / STUDY
    if not file.is_file():
        raise RunError(f"{path} is no study", f"it has no {STUDY}; one run's table is `eval --from`")
    facts = _facts(file)
    folders = run_folders(path, facts.seeds)
    for folder in folders.values():
        own = _table(_toml(folder / _RUN), "frozen").get("test_set", "")
        if own != facts.test_set:
            raise RunError(f"{folder} has the test set {own or 'none'}, its study {facts.test_set}", "move it away")
    runs = {seed: load_evaluation(folder) for seed, folder in folders.items()}
    harnesses = {run.harness for run in runs.values() if run.sessions}
    if len(harnesses) > 1:
        raise RunError(f"the runs are of several harnesses: {', '.join(sorted(harnesses))}", "move one away")
    return Study(facts, next(iter(harnesses), ""), {seed: run for seed, run in runs.items() if run.sessions})


def _facts(file: Path) -> StudyFacts:
    data = _toml(file)
    seeds = data.get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise RunError(f"{file} names no seeds", "restore the file from a copy")
    return StudyFacts(
        name=str(data.get("name", "study")),
        seeds=tuple(seeds),
        confidence=read_confidence(file),
        test_set=str(_table(data, "frozen").get("test_set", "")),
        configuration=f"sha256:{sha256_file(file)}",
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"cannot read {path}: {reason}", "restore the file from a copy") from error


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    return value if isinstance(value, dict) else {}
