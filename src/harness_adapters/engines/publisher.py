"""Brings adapter versions to an engine, and proves that the engine serves them before anyone samples from them.

Invariants
- A version's name and folder are never reused and never changed (`PolicyVersion.name`, `adapters/v<N>`).
- The current version changes only after a warm-up request and a passed canary; until then sessions get the old one.
- A version is unloaded when nobody holds a lease on it and it is not current: by reference count, never by age.

The canary. After each load the trainer's log-probs of fixed tokens are compared with the engine's under the new
name, on those tokens where the new version differs most from what could be served by mistake: the base and the
previous version. The mean ratio of probabilities would hide such a mistake (its expectation is 1 under the sampler);
the mean absolute difference of log-probs does not. Where the new version cannot be told from another (LoRA B = 0,
say) that is recorded as `indistinguishable`, which is neither passed nor failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY, PolicyVersion

NOISE = 1e-3
"""Mean |Δ log p| (nats) under which two policies count as indistinguishable; fp32 kernels agree to about 1e-5."""

SHARE = 0.25
"""The engine must be this much closer to the trainer than the wrong policy is (fraction of their distance)."""


class AdapterHost(Protocol):
    """What the publisher needs of an engine client."""

    async def load_adapter(self, name: str, path: Path) -> None: ...
    async def unload_adapter(self, name: str) -> None: ...
    async def score(self, model: str, token_ids: tuple[int, ...] | list[int]) -> list[float | None]: ...


@dataclass(frozen=True, slots=True)
class CanaryScores:
    """The trainer's log-probs (nats, temperature 1) of the canary's tokens under one policy.

    One list per canary sequence, one value per position `start <= i < len(sequence)`.
    """

    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Canary:
    """Fixed sequences; positions from `starts[i]` on are compared."""

    sequences: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """What the canary saw. `distances` maps each wrong policy to its mean |Δ log p| from the trainer's."""

    verdict: str
    served: float
    distances: Mapping[str, float] = field(default_factory=dict)
    tokens: int = 0


def judge_canary(
    served: CanaryScores, right: CanaryScores, wrong: Mapping[str, CanaryScores], *, tokens: int, threshold: float
) -> CanaryReport:
    """Compare what the engine serves with what the trainer holds.

    For each wrong policy the `tokens` positions where it differs most from the right one are compared. `failed` when
    the engine is off by more than `threshold` nats, or by more than `SHARE` of the distance to a wrong policy that
    can be told apart; `indistinguishable` when no wrong policy can; else `passed`.
    """
    flat_right, flat_served = _flatten(right), _flatten(served)
    worst, told_apart, failed = 0.0, 0, False
    distances: dict[str, float] = {}
    for name, scores in wrong.items():
        flat_wrong = _flatten(scores)
        order = sorted(range(len(flat_right)), key=lambda i: -abs(flat_right[i] - flat_wrong[i]))[:tokens]
        distance = _mean_gap(flat_right, flat_wrong, order)
        off = _mean_gap(flat_right, flat_served, order)
        distances[name] = distance
        worst = max(worst, off)
        limit = threshold
        if distance >= NOISE:
            told_apart += 1
            limit = min(threshold, SHARE * distance)
        failed = failed or not off <= limit
    proven = bool(wrong) and told_apart == len(wrong)
    verdict = "failed" if failed else "passed" if proven else "indistinguishable"
    return CanaryReport(verdict, worst, distances, min(tokens, len(flat_right)))


class Publisher:
    """Owns which version is current on one engine, and when old ones go."""

    def __init__(self, host: AdapterHost, adapters: Path, canary: Canary, *, tokens: int, threshold: float) -> None:
        self._host = host
        self._adapters = adapters
        self._canary = canary
        self._tokens = tokens
        self._threshold = threshold
        self._leases: Counter[str] = Counter()
        self._loaded: set[str] = set()
        self._scores: dict[str, CanaryScores] = {}
        self.current: str | None = None

    def folder(self, version: PolicyVersion) -> Path:
        return self._adapters / f"v{version.number}"

    def remember(self, name: str, scores: CanaryScores) -> None:
        """Note the trainer's canary scores of a policy that might later be served by mistake (the base, say)."""
        self._scores[name] = scores

    async def publish(self, version: PolicyVersion, right: CanaryScores) -> CanaryReport:
        """Load `adapters/v<N>`, prove it, make it current, drop the previous one when it is free.

        Raises EngineError when the canary fails; the current version then stays what it was and the new one is
        unloaded.
        """
        if version.name in self._loaded:
            raise EngineError(f"{version.name} is already loaded", "versions are never reused; publish the next number")
        with self.lease(version.name):  # or a sweep in the meantime would take it for one that nobody wants any more
            report = await self._load_and_prove(version, right)
            previous, self.current = self.current, version.name
        self._scores[version.name] = right
        if previous is not None:
            await self._retire(previous)
        return report

    async def _load_and_prove(self, version: PolicyVersion, right: CanaryScores) -> CanaryReport:
        await self._host.load_adapter(version.name, self.folder(version))
        self._loaded.add(version.name)
        try:
            report = await self.examine(version.name, right)
        except BaseException:
            await self._unload(version.name)
            raise
        if report.verdict == "failed":
            await self._unload(version.name)
            distances = ", ".join(f"{name} {distance:.3g}" for name, distance in report.distances.items())
            raise EngineError(
                f"the engine does not serve {version.name}: it is {report.served:.3g} nats a token off the trainer",
                f"distance to {distances}; training stops, no session used it",
            )
        return report

    async def examine(self, name: str, right: CanaryScores) -> CanaryReport:
        """Score the canary under `name` (which also warms the engine up) and judge it."""
        served: list[tuple[float, ...]] = []
        for ids, start in zip(self._canary.sequences, self._canary.starts, strict=True):
            scores = (await self._host.score(name, ids))[start:]
            served.append(tuple(math.nan if value is None else value for value in scores))
        wrong = {
            key: scores for key, scores in self._scores.items() if key != name and key in (BASE_POLICY, self.current)
        }
        return judge_canary(CanaryScores(tuple(served)), right, wrong, tokens=self._tokens, threshold=self._threshold)

    @contextlib.contextmanager
    def lease(self, name: str) -> Iterator[str]:
        """Hold a version for the time of a session: it is not unloaded meanwhile."""
        self._leases[name] += 1
        try:
            yield name
        finally:
            self._leases[name] -= 1
            if not self._leases[name]:
                del self._leases[name]

    async def sweep(self) -> None:
        """Unload every version that nobody holds and that is not current."""
        for name in sorted(self._loaded):
            await self._retire(name)

    async def _retire(self, name: str) -> None:
        if name != self.current and self._leases[name] <= 0 and name in self._loaded:
            await self._unload(name)
            if name != self.current:
                self._scores.pop(name, None)

    async def _unload(self, name: str) -> None:
        self._loaded.discard(name)  # at once, so that nobody else unloads it meanwhile
        try:
            await asyncio.shield(self._host.unload_adapter(name))
        except EngineError:
            self._loaded.add(name)
            raise


def _flatten(scores: CanaryScores) -> list[float]:
    return [value for sequence in scores.values for value in sequence]


def _mean_gap(a: Sequence[float], b: Sequence[float], positions: Sequence[int]) -> float:
    if len(a) != len(b) or not positions:
        return math.inf
    return sum(abs(a[i] - b[i]) for i in positions) / len(positions)
