"""The publisher: nothing wrong is ever current, and nothing in use is ever unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.engines.publisher import Canary, CanaryScores, Publisher, judge_canary
from harness_adapters.errors import EngineError
from harness_adapters.records import BASE_POLICY, PolicyVersion

CANARY = Canary(((1, 2, 3, 4),), (1,))


def scores(*values: float) -> CanaryScores:
    return CanaryScores((values,))


class Host:
    """An adapter host that answers with whatever scores it was told to serve."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.served: dict[str, tuple[float, ...]] = {}

    async def load_adapter(self, name: str, path: Path) -> None:
        self.loaded.append(name)

    async def unload_adapter(self, name: str) -> None:
        self.loaded.remove(name)

    async def score(self, model: str, token_ids: Sequence[int]) -> list[float | None]:
        return [None, *self.served[model]]


def version(number: int) -> PolicyVersion:
    return PolicyVersion("run", "pi", number)


def publisher(host: Host, tmp_path: Path) -> Publisher:
    made = Publisher(host, tmp_path, CANARY, tokens=3, threshold=0.02)
    made.remember(BASE_POLICY, scores(-3.0, -3.0, -3.0))
    return made


def test_an_engine_that_serves_the_base_under_the_new_name_is_caught_and_the_old_version_stays(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        host.served["run-pi-v0"] = (-1.0, -1.0, -1.0)
        assert (await made.publish(version(0), scores(-1.0, -1.0, -1.0))).verdict == "passed"
        host.served["run-pi-v1"] = (-3.0, -3.0, -3.0)
        with pytest.raises(EngineError, match="does not serve run-pi-v1"):
            await made.publish(version(1), scores(-0.9, -0.9, -0.9))
        assert made.current == "run-pi-v0"
        assert host.loaded == ["run-pi-v0"]

    asyncio.run(run())


def test_the_previous_version_under_the_new_name_is_caught_even_when_the_update_was_below_the_threshold(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        host.served["run-pi-v0"] = host.served["run-pi-v1"] = (-1.0, -1.0, -1.0)
        await made.publish(version(0), scores(-1.0, -1.0, -1.0))
        with pytest.raises(EngineError):
            await made.publish(version(1), scores(-0.99, -1.01, -0.99))

    asyncio.run(run())


def test_a_version_equal_to_the_base_is_recorded_as_indistinguishable_not_passed(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        host.served["run-pi-v0"] = (-3.0, -3.0, -3.0)
        report = await made.publish(version(0), scores(-3.0, -3.0, -3.0))
        assert report.verdict == "indistinguishable"

    asyncio.run(run())


def test_an_engine_that_gives_no_log_probs_fails(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        host.served["run-pi-v0"] = (float("nan"), -1.0, -1.0)
        with pytest.raises(EngineError):
            await made.publish(version(0), scores(-1.0, -1.0, -1.0))
        assert host.loaded == []

    asyncio.run(run())


def test_a_leased_version_is_unloaded_only_after_its_last_session(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        host.served = {"run-pi-v0": (-1.0, -1.0, -1.0), "run-pi-v1": (-0.5, -0.5, -0.5)}
        await made.publish(version(0), scores(-1.0, -1.0, -1.0))
        with made.lease("run-pi-v0"):
            await made.publish(version(1), scores(-0.5, -0.5, -0.5))
            await made.sweep()
            assert host.loaded == ["run-pi-v0", "run-pi-v1"]
        await made.sweep()
        assert host.loaded == ["run-pi-v1"]

    asyncio.run(run())


def test_a_sweep_amid_a_publication_leaves_the_new_version_alone(tmp_path: Path) -> None:
    class SweptHost(Host):
        async def score(self, model: str, token_ids: Sequence[int]) -> list[float | None]:
            await made.sweep()
            return await super().score(model, token_ids)

    async def run() -> None:
        for number in range(2):
            host.served[version(number).name] = (-1.0 - number, -1.0, -1.0)
            await made.publish(version(number), scores(-1.0 - number, -1.0, -1.0))
            assert made.current == version(number).name
        assert host.loaded == ["run-pi-v1"]

    host = SweptHost()
    made = publisher(host, tmp_path)
    asyncio.run(run())


def test_a_version_that_the_engine_did_not_let_go_is_unloaded_by_a_later_sweep(tmp_path: Path) -> None:
    class BusyHost(Host):
        busy = True

        async def unload_adapter(self, name: str) -> None:
            if self.busy:
                raise EngineError("not now")
            await super().unload_adapter(name)

    async def run() -> None:
        host = BusyHost()
        made = publisher(host, tmp_path)
        host.served = {"run-pi-v0": (-1.0, -1.0, -1.0), "run-pi-v1": (-0.5, -0.5, -0.5)}
        await made.publish(version(0), scores(-1.0, -1.0, -1.0))
        with pytest.raises(EngineError, match="not now"):
            await made.publish(version(1), scores(-0.5, -0.5, -0.5))
        assert made.current == "run-pi-v1"
        host.busy = False
        await made.sweep()
        assert host.loaded == ["run-pi-v1"]

    asyncio.run(run())


def test_a_version_that_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        for number in range(5):
            host.served[version(number).name] = (-1.0 - number, -1.0, -1.0)
            await made.publish(version(number), scores(-1.0 - number, -1.0, -1.0))
            with made.lease(version(number).name), made.lease(version(number).name):
                pass
        assert host.loaded == ["run-pi-v4"]
        assert set(made._scores) == {BASE_POLICY, "run-pi-v4"}
        assert not made._leases

    asyncio.run(run())


def test_a_version_is_never_published_twice(tmp_path: Path) -> None:
    async def run() -> None:
        host = Host()
        made = publisher(host, tmp_path)
        host.served["run-pi-v0"] = (-1.0, -1.0, -1.0)
        await made.publish(version(0), scores(-1.0, -1.0, -1.0))
        with pytest.raises(EngineError, match="never reused"):
            await made.publish(version(0), scores(-1.0, -1.0, -1.0))

    asyncio.run(run())


@given(
    st.lists(st.floats(-8, -0.01), min_size=4, max_size=32),
    st.floats(-1e-4, 1e-4),
    st.lists(st.floats(0.05, 3.0), min_size=32, max_size=32),
)
def test_whatever_the_policies_serving_the_wrong_one_fails_and_the_right_one_passes(
    right: list[float], noise: float, moves: list[float]
) -> None:
    wrong = [value - move for value, move in zip(right, moves, strict=False)]
    served_right = scores(*(value + noise for value in right))
    judged = judge_canary(served_right, scores(*right), {"previous": scores(*wrong)}, tokens=8, threshold=0.02)
    assert judged.verdict == "passed"
    judged = judge_canary(scores(*wrong), scores(*right), {"previous": scores(*wrong)}, tokens=8, threshold=0.02)
    assert judged.verdict == "failed"
