"""Where a run may write: no special file is replaced, no input under any of its names, and all appears or nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from harness_adapters.cli.safeagents import main
from harness_adapters.scrub import run as run_module

TEXT = json.dumps({"text": "cd /home/kvoss/src"}) + "\n"
CLEAN = json.dumps({"text": "cd /home/<user:1>/src"}) + "\n"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.jsonl"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


def called(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["scrub", *map(str, args)])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out + printed.err


def is_fifo(path: Path) -> bool:
    return stat.S_ISFIFO(path.lstat().st_mode)


def test_a_special_file_is_never_replaced(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "out" / "a.jsonl"
    fifo.parent.mkdir()
    os.mkfifo(fifo)
    out = tmp_path / "out.jsonl"
    for args in (
        (session, "-o", fifo, "--force"),
        (session.parent, "-o", fifo.parent, "--force"),
        (session.parent, "-o", fifo, "--force"),
        (session, "-o", out, "--report", fifo, "--force"),
        (session, "--check", "--report", fifo, "--force"),
    ):
        code, printed = called(capsys, *args)
        assert code == 1, args
        assert "regular file" in printed or "no folder" in printed
        assert is_fifo(fifo)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]
        assert list(fifo.parent.iterdir()) == [fifo]


def test_a_link_and_what_stands_in_a_folders_way_are_not_replaced(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "nowhere")
    assert called(capsys, session, "-o", link, "--force")[0] == 1
    assert link.is_symlink()
    (session.parent / "deep").mkdir()
    (session.parent / "deep" / "b.json").write_text(TEXT)
    out = tmp_path / "out"
    out.mkdir()
    (out / "deep").write_text("mine")
    assert called(capsys, session.parent, "-o", out, "--force")[0] == 1
    assert [p.name for p in out.iterdir()] == ["deep"]


def test_a_hard_link_of_an_input_is_an_input(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.jsonl"
    os.link(session, other)
    out = tmp_path / "out" / "a.jsonl"
    out.parent.mkdir()
    os.link(session, out)
    for args in (
        (session, "-o", other),
        (session.parent, "-o", out.parent),
        (session, "-o", tmp_path / "new.jsonl", "--report", other),
        (session.parent, "-o", tmp_path / "new", "--report", other),
    ):
        code, printed = called(capsys, *args, "--force")
        assert code == 1
        assert "one of the inputs" in printed
    assert other.read_text() == out.read_text() == TEXT
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "other.jsonl", "out"]


def test_the_report_is_neither_input_nor_output(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    link = tmp_path / "link.json"
    link.symlink_to(session)
    folder = tmp_path / "same"
    folder.symlink_to(tmp_path)
    for report in (session, link, session.parent / ".." / "in" / "a.jsonl", out, folder / "out.jsonl"):
        assert called(capsys, session, "-o", out, "--report", report, "--force")[0] == 1, report
        assert session.read_text() == TEXT
        assert not out.exists()
    assert called(capsys, session.parent, "-o", tmp_path / "new", "--report", tmp_path / "new" / "a.jsonl")[0] == 1
    assert not (tmp_path / "new").exists()


def test_a_binary_file_of_a_folder_is_left_out_and_said(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (session.parent / "state.json").write_bytes(b"SQLite format 3\0...")
    os.mkfifo(session.parent / "pipe.json")
    code, printed = called(capsys, session.parent, "-o", tmp_path / "out", "--report", tmp_path / "report.json")
    assert code == 2
    assert "no text" in printed
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.jsonl"]
    left_out = json.loads((tmp_path / "report.json").read_text())["left_out"]
    assert {(entry["file"], entry["why"]) for entry in left_out} == {
        ("pipe.json", "no regular file"),
        ("state.json", "no text"),
    }


def test_a_slash_at_the_end_means_a_folder(session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, session, "-o", f"{tmp_path}/outd/")[0] == 0
    assert (tmp_path / "outd" / "a.jsonl").read_text() == CLEAN


def test_an_interrupt_says_that_nothing_was_kept(
    session: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "_again", interrupted)
    code, printed = called(capsys, session, "-o", tmp_path / "out.jsonl")
    assert code == 130
    assert "nothing was kept" in printed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]
