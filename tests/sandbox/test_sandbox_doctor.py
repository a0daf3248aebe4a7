"""The doctor tells a machine that works from one that does not, and names what is in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness_adapters.sandbox import SandboxSpec, doctor, refusals
from harness_adapters.sandbox.bubblewrap import BubblewrapSandbox


def test_a_working_machine_passes_every_check(inside: Callable[..., Any]) -> None:
    checks = asyncio.run(doctor.diagnose())
    assert [check for check in checks if not check.ok] == []
    assert {"sandbox starts", "network denied", "environment hidden", "overlay root"} <= {c.name for c in checks}
    assert all(check.detail for check in checks)


def test_a_sandbox_that_does_not_start_fails_one_check_with_its_remedy(tmp_path: Path) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: Unknown option --overlay-src' >&2; exit 1\n")
    bwrap.chmod(0o755)

    async def look() -> list[doctor.Check]:
        return await doctor.diagnose(BubblewrapSandbox(SandboxSpec(), bwrap=bwrap))

    failed = [check for check in asyncio.run(look()) if not check.ok]
    assert [check.name for check in failed] == ["sandbox starts"]
    assert "0.11" in failed[0].hint


def test_each_kernel_setting_that_forbids_namespaces_is_named() -> None:
    for name, value in (
        ("kernel.unprivileged_userns_clone", "0"),
        ("user.max_user_namespaces", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    ):
        assert name in refusals.blocked_by({name: value})
    assert refusals.blocked_by({"user.max_user_namespaces": "96364"}) == ""
