"""The guard: rules, not a model, between an agent and its tools. Pure; see `guard.Guard`."""

from __future__ import annotations

from harness_adapters.guard.guard import Guard
from harness_adapters.guard.log import case_of, log_entry
from harness_adapters.guard.policy import GuardPolicy

__all__ = ["Guard", "GuardPolicy", "case_of", "log_entry"]
