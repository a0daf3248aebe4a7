"""The guard's one fixture."""

from __future__ import annotations

import pytest
from guard_support import Judge, judge_call


@pytest.fixture(name="judge")
def _judge() -> Judge:
    return judge_call
