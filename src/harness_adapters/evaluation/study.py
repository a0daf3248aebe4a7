"""A study: several training runs of one recipe, by their seeds, judged on one test set; and what it comes to.

Invariant: a study with anything missing claims nothing. It was to be run once and judged once; a look at half of it
that may be followed by the other half is another procedure, with other chances of being wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness_adapters.evaluation.compare import Comparison, compare_sessions
from harness_adapters.evaluation.from_run import RunEvaluation
from harness_adapters.evaluation.pooling import PooledSplit, pool


@dataclass(frozen=True, slots=True)
class StudyFacts:
    """What stands beside a study's numbers. `seeds` are those planned; `test_set` and `configuration` digests that
    begin with `sha256:`, the first empty where the runs were judged on development tasks."""

    name: str
    seeds: tuple[int, ...]
    confidence: float
    test_set: str
    configuration: str


@dataclass(frozen=True, slots=True)
class Study:
    """The evaluations of a study's runs by seed, in the planned order; a run without a session is not among them."""

    facts: StudyFacts
    harness: str
    runs: Mapping[int, RunEvaluation]

    def gaps(self) -> tuple[str, ...]:
        """What is missing or does not fit together, one sentence each; normally nothing."""
        found = [f"seed {seed} has not been evaluated" for seed in self.facts.seeds if seed not in self.runs]
        found += [f"seed {seed}: {gap}" for seed, run in self.runs.items() for gap in run.gaps()]
        tasks = [{(session.split, session.task) for session in run.sessions} for run in self.runs.values()]
        if not found and any(judged != tasks[0] for judged in tasks):
            common, all_tasks = set.intersection(*tasks), set.union(*tasks)
            found.append(
                f"the runs were not judged on the same tasks: {len(common)} of {len(all_tasks)} are in every run"
            )
        return tuple(found)


@dataclass(frozen=True, slots=True)
class StudyComparison:
    """A study's numbers: every run by itself, and all of them pooled. `gaps` are sentences; with any, no claim."""

    facts: StudyFacts
    harness: str
    gaps: tuple[str, ...]
    splits: tuple[PooledSplit, ...]
    runs: Mapping[int, Comparison]


def compare_study(study: Study) -> StudyComparison:
    """All numbers of a study, from its sessions alone."""
    confidence = study.facts.confidence
    return StudyComparison(
        facts=study.facts,
        harness=study.harness,
        gaps=study.gaps(),
        splits=pool({seed: run.sessions for seed, run in study.runs.items()}, confidence=confidence),
        runs={
            seed: compare_sessions(run.sessions, harness=study.harness, confidence=confidence)
            for seed, run in study.runs.items()
        },
    )
