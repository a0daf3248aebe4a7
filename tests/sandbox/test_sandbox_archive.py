"""No archive and no tree makes either side of the border follow a link, leave its folder, or exceed its size."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_adapters.sandbox import archive, transfer
from harness_adapters.sandbox.archive import ArchiveError

NAMES = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
        lambda part: part not in (".", "..")
    ),
    min_size=1,
    max_size=4,
).map("/".join)


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    return info


@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=8))
def test_what_is_packed_comes_out_again(files: dict[str, bytes]) -> None:
    assert archive.unpack(archive.pack(files)) == files


def test_the_same_files_give_the_same_bytes() -> None:
    one = archive.pack({"b": b"2", "a": (b"1", 0o755)})
    assert one == archive.pack({"a": (b"1", 0o755), "b": b"2"})


@pytest.mark.parametrize(
    "bad",
    [
        member("a", tarfile.SYMTYPE, "/etc/passwd"),
        member("a", tarfile.LNKTYPE, "b"),
        member("a", tarfile.CHRTYPE),
        member("a", tarfile.BLKTYPE),
        member("a", tarfile.FIFOTYPE),
        member("a", tarfile.CONTTYPE),
        member("/etc/passwd"),
        member("../x"),
        member("a/../../x"),
        member("."),
        member("d/" * 200 + "x"),
    ],
    ids=lambda info: f"{info.type!r}-{info.name[:12]}",
)
def test_unsafe_members_are_refused(bad: tarfile.TarInfo) -> None:
    with pytest.raises(ArchiveError):
        archive.unpack(tar_of((member("fine"), b"x"), (bad, b"")))


def test_a_sparse_member_cannot_claim_a_terabyte() -> None:
    info = member("huge")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.map": "0,0", "GNU.sparse.size": str(1 << 40)}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    with pytest.raises(ArchiveError):
        archive.unpack(out.getvalue())


def test_a_cut_archive_is_refused() -> None:
    tar = archive.pack({"a": b"x" * 3000})
    with pytest.raises(ArchiveError):
        archive.unpack(tar[:2000])


@settings(max_examples=300)
@given(st.data())
def test_damage_is_an_archive_error_or_harmless(data: st.DataObject) -> None:
    tar = bytearray(archive.pack({"a/b": b"x" * 700, "ü" * 80: b"y"}))
    for _ in range(data.draw(st.integers(1, 6))):
        tar[data.draw(st.integers(0, len(tar) - 1))] = data.draw(st.integers(0, 255))
    try:
        files = archive.unpack(bytes(tar))
    except ArchiveError:
        return
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in files)


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/passwd"), os.mkfifo], ids=["link", "fifo"])
def test_pack_dir_refuses_what_is_not_plain(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "fine").write_text("x")
    make(tmp_path / "odd")
    with pytest.raises(ArchiveError, match="odd"):
        archive.pack_dir(tmp_path)


def test_pack_dir_keeps_content_and_modes(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "d" / "run.sh").chmod(0o4755)
    tar = archive.pack_dir(tmp_path)
    assert archive.unpack(tar) == {"d/run.sh": b"#!/bin/sh\n"}
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        assert opened.getmember("d/run.sh").mode == 0o755


def test_unpacking_replaces_planted_links_and_follows_none(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    tree.mkdir()
    (outside / "file").write_text("untouched")
    (tree / "folder").symlink_to(outside)
    (tree / "file").symlink_to(outside / "file")
    os.link(outside / "file", tree / "hard")
    transfer.unpack(io.BytesIO(archive.pack({"folder/file": b"1", "file": b"2", "hard": b"3"})), str(tree))
    assert (outside / "file").read_text() == "untouched"
    assert sorted(p.name for p in outside.iterdir()) == ["file"]
    assert [(tree / n).read_text() for n in ("folder/file", "file", "hard")] == ["1", "2", "3"]


def test_a_destination_below_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"directory|symbolic"):
        transfer.unpack(io.BytesIO(archive.pack({"a": b""})), str(tmp_path / "link" / "x"))
    assert list((tmp_path / "real").iterdir()) == []


def test_packing_leaves_links_and_special_files_out(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    assert archive.unpack(transfer.packed(str(tmp_path), 1 << 20)) == {"a": b"a"}


def test_a_link_itself_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(transfer.Refused):
        transfer.packed(str(tmp_path / "link"), 1 << 20)


@given(st.integers(1, 40), st.integers(0, 3000))
@settings(max_examples=25, deadline=None)
def test_a_packed_tree_never_exceeds_its_limit(tmp_path_factory: pytest.TempPathFactory, count: int, size: int) -> None:
    folder = tmp_path_factory.mktemp("tree")
    for number in range(count):
        (folder / f"{'n' * 150}{number}").write_bytes(b"x" * size)
    limit = 60_000
    try:
        tar = transfer.packed(str(folder), limit)
    except transfer.Refused:
        assert count * (size + 1500) > limit / 2
    else:
        assert len(tar) <= limit


def test_a_deep_tree_is_refused_rather_than_exhausting_the_stack(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(150):
        folder = folder / "d"
        folder.mkdir()
    with pytest.raises(transfer.Refused, match="deep"):
        transfer.packed(str(tmp_path), 1 << 20)
