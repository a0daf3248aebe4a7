"""Can this machine run sandboxes? Each part is looked at by itself, and one real sandbox is started.

Invariant: `diagnose` does not raise for anything a machine may lack; what fails is a `Check` with the next step in
its hint. The checks inside the sandbox are skipped, not failed, when it does not start: the cause is named once.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness_adapters.errors import InfraError
from harness_adapters.sandbox import launcher, layers, refusals
from harness_adapters.sandbox.bubblewrap import ENVIRONMENT, BubblewrapSandbox
from harness_adapters.sandbox.protocol import ExecResult, SandboxSpec

PROBE_SECONDS = 30.0
_NETWORK_PROBE = """
import socket
for address in (("1.1.1.1", 443), ("169.254.169.254", 80)):
    try:
        socket.create_connection(address, timeout=2)
    except OSError as error:
        print(error.strerror or error)
    else:
        raise SystemExit(f"reached {address[0]}")
"""
_LEAK_PROBE = """
import os, sys
allowed = set(sys.argv[1:])
seen = set()
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            data = open(f"/proc/{name}/environ", "rb").read()
        except OSError:
            continue
        seen |= {entry.split(b"=")[0].decode() for entry in data.split(b"\\0") if entry}
leaked = seen - allowed
raise SystemExit("visible inside: " + ", ".join(sorted(leaked)) if leaked else 0)
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at; `hint` is the next step when it is not ok, empty otherwise."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


async def diagnose(sandbox: BubblewrapSandbox | None = None) -> list[Check]:
    """All checks, from cause to effect. `sandbox`: one not yet started, to use for the probes."""
    checks = [_system(), _namespaces(), _checked("bubblewrap", _bubblewrap), _checked("root layer", _layer)]
    sandbox = sandbox or BubblewrapSandbox(SandboxSpec())
    try:
        started = time.monotonic()
        await sandbox.start()
        checks.append(Check("sandbox starts", True, f"ready in {(time.monotonic() - started) * 1000:.0f} ms"))
        checks += await _probe(sandbox)
    except InfraError as error:
        checks.append(Check("sandbox starts", False, error.message, error.hint))
    finally:
        await sandbox.kill()
    return checks


def _system() -> Check:
    detail = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform != "linux":
        return Check(
            "system", False, detail, "local sandboxes need Linux; on another system run inside a Linux machine"
        )
    return Check("system", True, detail)


def _namespaces() -> Check:
    knobs = refusals.read_knobs()
    detail = ", ".join(f"{name}={value}" for name, value in knobs.items()) or "no kernel setting restricts them"
    remedy = refusals.blocked_by(knobs)
    return Check("user namespaces", not remedy, detail, remedy)


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except InfraError as error:
        return Check(name, False, error.message, error.hint)


def _bubblewrap() -> str:
    bwrap = launcher.find_bwrap()
    return f"{'.'.join(map(str, launcher.bwrap_version(bwrap)))} at {bwrap}"


def _layer() -> str:
    return str(layers.skeleton())


async def _probe(sandbox: BubblewrapSandbox) -> list[Check]:
    python = launcher.interpreter()
    own = {name for name, _ in python.env} | {"PWD", "OLDPWD", "SHLVL", "_"}

    async def run(code: str, *arguments: str) -> ExecResult:
        argv = [python.path, "-I", "-S", "-c", code, *arguments]
        return await sandbox.exec(argv, env=dict(python.env), timeout=PROBE_SECONDS)

    network = await run(_NETWORK_PROBE)
    leak = await run(_LEAK_PROBE, *own, *ENVIRONMENT)
    write = await sandbox.exec(["/bin/sh", "-c", "echo x > /workspace/x && ! echo x > /usr/x"], timeout=PROBE_SECONDS)
    limits = "; ".join(f"{name}: {how}" for name, how in sandbox.limits_enforced().items())
    return [
        _verdict("network denied", network, "do not train here: the sandbox can reach the network"),
        _verdict("environment hidden", leak, "do not train here: host variables are visible inside"),
        _verdict("overlay root", write, "the overlay is not writable, or /usr is: report both lines above"),
        Check("limits", True, limits),
    ]


def _verdict(name: str, result: ExecResult, hint: str) -> Check:
    if result.returncode == 0:
        said = result.stdout.decode(errors="replace").split("\n")[0]
        return Check(name, True, said or "as it should be")
    said = result.stderr.decode(errors="replace").strip()[-200:]
    return Check(name, False, said or f"the probe ended with {result.returncode}", hint)
