"""pi as a harness, short of running it: installs, wiring, and reading its end out of damaged output."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.errors import ConfigError, HarnessError
from harness_adapters.harnesses import HARNESSES, get_harness
from harness_adapters.harnesses import pi as pi_module
from harness_adapters.harnesses.node import node_folder, run_leashed, run_npm
from harness_adapters.harnesses.pi import Pi, install, install_folder, is_installed


def _line(**event: object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _assistant(stop: str, error: str = "") -> bytes:
    return _line(type="message_end", message={"role": "assistant", "stopReason": stop, "errorMessage": error})


def test_unknown_harness_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="known harnesses: pi"):
        get_harness("vim")
    assert [get_harness(name).name for name in HARNESSES] == ["pi"]


def test_exit_status_zero_with_a_failed_request_is_a_failure() -> None:
    ending = Pi().read_exit(_assistant("toolUse") + _assistant("error", "500 engine"), b"", 0)
    assert (ending.ok, ending.error, ending.crashed) == (False, "500 engine", False)


def test_an_error_that_pi_recovered_from_is_not_its_end() -> None:
    assert Pi().read_exit(_assistant("error", "429") + _assistant("stop"), b"", 0).ok


@pytest.mark.parametrize(("returncode", "said"), [(-9, "signal 9"), (137, "exit status 137"), (None, "no exit status")])
def test_a_dead_process_is_a_crash(returncode: int | None, said: str) -> None:
    ending = Pi().read_exit(_assistant("toolUse"), b"FATAL ERROR: out of memory\n", returncode)
    assert ending.crashed
    assert said in ending.error
    assert "out of memory" in ending.error


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.just(b"[1]\n"), st.just(b'{"type": "message_end"}\n')), max_size=5)
)
def test_foreign_and_cut_lines_do_not_hide_the_end(noise: list[bytes]) -> None:
    stdout = b"\n".join([*noise, b""]) + _assistant("error", "boom") + b'{"type": "agent_end", "mess'
    assert Pi().read_exit(stdout, b"", 0).error == "boom"


def test_the_instruction_travels_on_standard_input_only() -> None:
    launch = Pi().launch("@file --help\n$HOME", session_id="s1", alias="policy")
    assert launch.stdin == b"@file --help\n$HOME"
    assert "@file" not in " ".join(launch.argv)
    assert launch.env["PI_CODING_AGENT_DIR"].startswith("/home/agent/")


def test_configuration_names_the_alias_and_turns_side_requests_off() -> None:
    files = Pi().files(base_url="http://127.0.0.1:1/v1", alias="policy", context=8192, max_tokens=96)
    models = json.loads(files["/home/agent/.pi/agent/models.json"])
    settings = json.loads(files["/home/agent/.pi/agent/settings.json"])
    (provider,) = models["providers"].values()
    assert provider["baseUrl"] == "http://127.0.0.1:1/v1"
    assert provider["models"][0]["id"] == "policy"
    assert provider["models"][0]["contextWindow"] == 8192
    assert settings["compaction"]["enabled"] is settings["retry"]["enabled"] is False


def test_every_tool_that_is_switched_on_is_in_the_map() -> None:
    argv = Pi().launch("x", session_id="s", alias="policy").argv
    assert set(argv[argv.index("--tools") + 1].split(",")) <= set(Pi.tool_map.tools)


def test_pi_that_is_not_installed_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="doctor --prepare"):
        Pi(tmp_path).mounts()


def test_failed_npm_leaves_nothing_and_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pi_module, "VERSION", "0.0.0-does-not-exist")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(HarnessError, match=r"npm failed: .*registry could not be reached"):
        install(tmp_path, lambda _: None)
    assert [path.name for path in (tmp_path / "harnesses").iterdir()] == ["pi-0.0.0-does-not-exist.lock"]


def test_a_killed_install_takes_its_npm_along_and_the_next_one_clears_up_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pi_module, "VERSION", "0.0.0-does-not-exist")
    code = (
        "import sys\nfrom pathlib import Path\nfrom harness_adapters.harnesses import pi\n"
        "pi.VERSION = sys.argv[2]\npi.install(Path(sys.argv[1]), print)"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            **os.environ,
            "npm_config_registry": f"http://127.0.0.1:{silent.getsockname()[1]}/",
            "npm_config_cache": str(tmp_path / "npm"),
        }
        installer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), pi_module.VERSION], env=environment)
        silent.settimeout(60)
        connection, _ = silent.accept()  # npm is up and asks
        assert processes_in(tmp_path / "harnesses")
        installer.kill()
        installer.wait()
        wait_until(lambda: not processes_in(tmp_path / "harnesses"))
        connection.close()
    assert len(list((tmp_path / "harnesses").iterdir())) == 2
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(HarnessError):
        install(tmp_path, lambda _: None)
    assert [path.name for path in (tmp_path / "harnesses").iterdir()] == [f"pi-{pi_module.VERSION}.lock"]


def processes_in(folder: Path) -> list[int]:
    """Pids of this machine's processes that work below a folder; npm gives itself a title in place of its arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "cwd").startswith(str(folder)):
                found.append(int(entry.name))
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come about within a minute"
        time.sleep(0.02)


def test_a_command_that_cannot_be_run_says_so(tmp_path: Path) -> None:
    done = run_leashed([str(tmp_path / "absent")], cwd=tmp_path, env={}, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.strip().endswith(b"absent: No such file or directory")


def test_interrupted_install_does_not_count(tmp_path: Path) -> None:
    folder = install_folder(tmp_path)
    folder.mkdir(parents=True)
    assert not is_installed(folder)
    (folder / "manifest.json").write_text("{}")
    assert not is_installed(folder)


def test_npm_runs_on_the_wheels_own_node(tmp_path: Path) -> None:
    assert (node_folder() / "bin" / "node").is_file()
    run_npm(("--version",), cwd=tmp_path, timeout=60)
    with pytest.raises(HarnessError, match="did not finish"):
        run_npm(("--version",), cwd=tmp_path, timeout=0.001)
