"""Fixtures of the evaluation tests."""

from __future__ import annotations

import pytest
from evaluation_samples import MakeRollout, rollout_factory


@pytest.fixture
def make_rollout() -> MakeRollout:
    """A factory of evaluation rollouts; each gets an id of its own."""
    return rollout_factory()
