"""Folders and files on the disk: whole or not at all, also when the disk is full and when writers are killed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from harness_adapters import storage
from harness_adapters.errors import InfraError
from harness_adapters.storage import atomic_folder, clear_leftovers, remove_folder, sweep, write_tensors

DAY = 24 * 3600.0


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let the system refuse writes past `size` bytes, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def fill(final: Path, text: str) -> None:
    with atomic_folder(final) as work:
        (work / "file").write_text(text)


def leftover(path: Path, text: str, age: float) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.mark.parametrize("exchanges", [True, False])
def test_an_existing_folder_is_replaced_and_nothing_else_is_left(
    exchanges: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchanges:
        monkeypatch.setattr(storage, "_exchange", lambda *_: False)
    fill(tmp_path / "a", "old")
    fill(tmp_path / "a", "new")
    assert (tmp_path / "a" / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_reader_never_finds_the_name_gone_while_it_is_replaced(tmp_path: Path) -> None:
    probe = [leftover(tmp_path / name, name, 0) for name in ("one", "other")]
    if not storage._exchange(*probe):
        pytest.skip("this file system cannot exchange two folders")
    assert [(path / "file").read_text() for path in probe] == ["other", "one"]
    fill(tmp_path / "a", "0")
    code = (
        "import os, sys\nprint('ready', flush=True)\nmissing = 0\n"
        "while not os.path.exists(sys.argv[2]): missing += not os.path.exists(sys.argv[1])\nprint(missing)"
    )
    command = [sys.executable, "-I", "-c", code, str(tmp_path / "a"), str(tmp_path / "stop")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        for number in range(300):
            fill(tmp_path / "a", str(number))
        (tmp_path / "stop").touch()
        assert reader.stdout.read().strip() == "0"


def test_a_folder_retired_by_a_killed_writer_is_put_back(tmp_path: Path) -> None:
    leftover(tmp_path / ".a.abcdefgh.old", "old", 0)
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "a"):
        raise RuntimeError
    assert (tmp_path / "a" / "file").read_text() == "old"


def test_what_dead_writers_of_the_same_folder_left_goes_and_a_live_writers_work_stays(tmp_path: Path) -> None:
    left = leftover(tmp_path / ".a.abcdefgh.tmp", "", 0)
    others = leftover(tmp_path / ".a.b.abcdefgh.tmp", "", 2 * DAY)
    with atomic_folder(tmp_path / "a") as at_work:
        (at_work / "file").write_text("slow")
        fill(tmp_path / "a", "quick")
        assert at_work.exists()
        assert not left.exists()
    assert (tmp_path / "a" / "file").read_text() == "slow"
    assert others.exists()


def test_a_writer_killed_at_its_work_leaves_a_folder_that_the_next_one_clears_away(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom harness_adapters.storage import atomic_folder\n"
        "with atomic_folder(Path(sys.argv[1])) as work:\n (work / 'file').write_text('half')\n"
        " print('at work', flush=True)\n time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a")], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"at work\n"
        fill(tmp_path / "b", "another")
        clear_leftovers(tmp_path / "a")
        assert len(os.listdir(tmp_path)) == 2
        writer.kill()
        writer.wait()
    clear_leftovers(tmp_path / "a")
    assert os.listdir(tmp_path) == ["b"]


def test_where_folders_cannot_be_locked_the_age_of_a_leftover_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(storage.fcntl, "flock", refused)
    abandoned = leftover(tmp_path / ".a.abcdefgh.tmp", "", 2 * DAY)
    at_work = leftover(tmp_path / ".a.abcdefgi.tmp", "", DAY / 2)
    fill(tmp_path / "a", "new")
    assert not abandoned.exists()
    assert at_work.exists()


def test_a_sweep_takes_every_unfinished_file_and_folder_and_nothing_else(tmp_path: Path) -> None:
    leftover(tmp_path / ".v1.abcdefgh.tmp", "", 0)
    (tmp_path / ".r1.json.k3j_x90a.tmp").write_text("half")
    leftover(tmp_path / ".v2.abcdefgh.old", "retired", 0)
    kept = {"r1.json", ".lock", ".hidden.tmp", "a.abcdefgh.tmp", ".a.ABCDEFGH.tmp", ".a.abcdefghi.tmp"}
    for name in kept:
        (tmp_path / name).write_text("")
    assert sweep(tmp_path) == [".r1.json.k3j_x90a.tmp", ".v1.abcdefgh.tmp"]
    assert set(os.listdir(tmp_path)) == kept | {"v2"}
    assert (tmp_path / "v2" / "file").read_text() == "retired"
    assert sweep(tmp_path) == []
    assert sweep(tmp_path / "absent") == []


def test_a_folder_that_is_removed_is_never_seen_half_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "a", "x")
    monkeypatch.setattr(storage.shutil, "rmtree", lambda *_, **__: None)  # a kill right after the first step
    remove_folder(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    monkeypatch.undo()
    assert len(sweep(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


def test_a_full_disk_met_by_safetensors_is_an_infra_error_and_leaves_nothing(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(5000)}
    refused = pytest.raises(InfraError, match="a: File too large")
    with files_up_to(4096), refused as caught, atomic_folder(tmp_path / "a") as work:
        write_tensors(work / "model.safetensors", tensors)
    assert caught.value.hint
    assert os.listdir(tmp_path) == []
    write_tensors(tmp_path / "model.safetensors", tensors)
    assert torch.equal(load_file(str(tmp_path / "model.safetensors"))["a"], tensors["a"])


def test_no_space_left_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    def full(*_: object, **__: object) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    refused = pytest.raises(InfraError, match=r"No space left on device \(free some disk space")
    with refused, atomic_folder(tmp_path / "a") as work:
        write_tensors(work / "model.safetensors", {})
