"""A run over files: whole outputs or none, no input written over, no value in what is reported."""

from __future__ import annotations

import errno
import json
import os
import random
import string
from pathlib import Path

import pytest
from samples import Sampler

from harness_adapters.cli.safeagents import main
from harness_adapters.errors import ConfigError, InfraError, SessionError
from harness_adapters.scrub import Scrubber, check_files, scrub_files
from harness_adapters.scrub import run as run_module
from harness_adapters.scrub.rules import RULES

SECRET = Sampler(9).of(next(rule.form for rule in RULES if rule.kind == "groq_key"))


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text(json.dumps({"text": f"key {SECRET}", "password": "kite-Zebra77x"}) + "\n")
    (folder.parent / "b.json").write_text(json.dumps({"text": f"again {SECRET}"}, indent=1))
    (folder.parent / "notes.md").write_text("no session")
    (folder.parent / "link.json").symlink_to(folder / "a.jsonl")
    return folder.parent


def test_a_folder_keeps_its_shape_and_stand_ins_hold_over_files(sessions: Path, tmp_path: Path) -> None:
    report = scrub_files([sessions], tmp_path / "out", Scrubber())
    assert (tmp_path / "out/deep/a.jsonl").read_text() == '{"text": "key <groq_key:1>", "password": "<secret:1>"}\n'
    assert json.loads((tmp_path / "out/b.json").read_text()) == {"text": "again <groq_key:1>"}
    assert report.kinds == {"groq_key": 2, "secret": 1}
    assert {why for _, why in report.left_out} == {"a link", "not JSON by its name"}
    assert sorted(p.name for p in (tmp_path / "out").rglob("*")) == ["a.jsonl", "b.json", "deep"]


def test_the_output_passes_the_check_and_the_input_does_not(sessions: Path, tmp_path: Path) -> None:
    assert check_files([sessions], Scrubber()).kinds
    scrub_files([sessions], tmp_path / "out", Scrubber())
    assert not check_files([tmp_path / "out"], Scrubber()).kinds


def test_a_value_that_a_later_file_gives_away_goes_from_the_earlier_one(tmp_path: Path) -> None:
    value = "".join(random.Random(5).choices(string.ascii_letters + string.digits, k=40))
    (tmp_path / "1.json").write_text(json.dumps({"t": f"saw {value}"}))
    (tmp_path / "2.json").write_text(json.dumps({"t": f"Authorization: Bearer {value}"}))
    scrub_files([tmp_path / "1.json", tmp_path / "2.json"], tmp_path / "out", Scrubber())
    assert (tmp_path / "out/1.json").read_text() == '{"t": "saw <bearer_token:1>"}'


def test_nothing_is_written_over(sessions: Path, tmp_path: Path) -> None:
    source = sessions / "b.json"
    with pytest.raises(ConfigError, match="input"):
        scrub_files([source], source, Scrubber(), force=True)
    with pytest.raises(ConfigError, match="inputs"):
        scrub_files([sessions], sessions, Scrubber(), force=True)
    out = tmp_path / "out.json"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        scrub_files([source], out, Scrubber())
    assert out.read_text() == "mine"
    scrub_files([source], out, Scrubber(), force=True)
    assert "groq_key" in out.read_text()
    with pytest.raises(ConfigError, match="is a file"):
        scrub_files([sessions], out, Scrubber())


def test_a_full_disk_leaves_nothing(sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run_module.os, "fsync", full)
    with pytest.raises(InfraError, match="No space left"):
        scrub_files([sessions], tmp_path / "out", Scrubber())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_an_interrupt_leaves_nothing(sessions: Path, tmp_path: Path) -> None:
    def interrupt(done: int, files: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scrub_files([sessions], tmp_path / "out", Scrubber(), progress=interrupt)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_databases_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"SQLite format 3\0...")
    with pytest.raises(SessionError, match="no text"):
        check_files([tmp_path / "state.db"], Scrubber())
    with pytest.raises(SessionError, match="no file or folder"):
        check_files([tmp_path / "none"], Scrubber())


def test_names_of_people_leave_file_names(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "-Users-kvoss-src"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"cwd": "/Users/kvoss/src"}\n')
    report = scrub_files([tmp_path / "in"], tmp_path / "out", Scrubber())
    assert (tmp_path / "out/-Users-user-1-src/a.jsonl").read_text() == '{"cwd": "/Users/<user:1>/src"}\n'
    assert "kvoss" not in json.dumps(report.as_json())


def called(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["scrub", *args])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_the_command_reports_kinds_and_places_and_never_values(
    sessions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    code, out, err = called(capsys, str(sessions), "-o", str(tmp_path / "out"), "--report", str(report))
    assert code == 0, err
    assert "groq_key" in out
    assert SECRET not in out + err + report.read_text()
    assert "kite-Zebra" not in out + err + report.read_text()
    places = json.loads(report.read_text())["files"]
    assert {"kind": "groq_key", "line": 1, "path": "text"} in places[0]["places"] + places[1]["places"]


def test_exit_codes(sessions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, str(sessions), "--check")[0] == 1
    assert called(capsys, str(sessions), "-o", str(tmp_path / "out"))[0] == 0
    assert called(capsys, str(tmp_path / "out"), "--check")[0] == 0
    code, _, err = called(capsys, str(tmp_path / "none"), "--check")
    assert code == 1
    assert err.startswith("error: no file or folder")
    assert called(capsys)[0] == 2
    assert called(capsys, str(sessions))[0] == 2
    assert called(capsys, str(sessions), "--check", "-o", "x")[0] == 2


def test_find_lists_sessions_by_harness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    session = tmp_path / ".pi/agent/sessions/--w--/a.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text("{}")
    code, out, _ = called(capsys, "--find")
    assert code == 0
    assert str(session) in out
    assert "pi" in out
