"""The reader takes what can run here and refuses everything else in one line; the writer shows whole directories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_adapters.errors import TaskError
from harness_adapters.tasks.format import _to_toml, bundle_hash, read_task, read_tasks, write_task

FILES = {"tests/test.sh": b"#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n", "solution/solve.sh": b"#!/bin/sh\ntrue\n"}
SMALLEST = 'schema_version = "1.4"\n'


def make(
    folder: Path, toml: str = SMALLEST, *, instruction: bytes = b"Do it.\n", files: Mapping[str, bytes] = FILES
) -> Path:
    path = folder / "task-1"
    content = {"task.toml": toml.encode(), "instruction.md": instruction, **files}
    (path / "environment").mkdir(parents=True)
    for name, data in content.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(TaskError) as caught:
        read_task(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_the_smallest_task_reads_with_harbors_defaults(tmp_path: Path) -> None:
    task = read_task(make(tmp_path))
    assert (task.id, task.instruction, task.workdir) == ("task-1", "Do it.", "/workspace")
    assert task.agent_timeout is None
    assert task.verifier_timeout == 600.0
    assert task.artifacts == ("/workspace",)
    assert task.guard == {}


@pytest.mark.parametrize("head", ['version = "1.0"', *(f'schema_version = "1.{n}"' for n in range(5))])
def test_every_schema_version_up_to_1_4_is_read(tmp_path: Path, head: str) -> None:
    assert read_task(make(tmp_path, head + "\n")).id == "task-1"


def test_every_field_that_is_done_arrives(tmp_path: Path) -> None:
    toml = """schema_version = "1.4"
source = "somewhere"
artifacts = ["/workspace/out/", {source = "/logs/artifacts"}, "/home/agent/a.txt"]
[task]
name = "org/name"
authors = [{name = "A", email = "a@example.test"}]
[agent]
timeout_sec = 90
network_mode = "no-network"
[verifier]
timeout_sec = 12.5
environment_mode = "separate"
[environment]
build_timeout_sec = 30.0
workdir = "/workspace/app"
cpus = 1
memory_mb = 512
storage_mb = 100
gpus = 0
mcp_servers = []
allow_internet = false
[metadata]
family = "repair"
[metadata.guard]
protected = ["/workspace/data"]
"""
    task = read_task(make(tmp_path, toml))
    assert task.artifacts == ("/workspace/out", "/logs/artifacts", "/home/agent/a.txt")
    assert (task.agent_timeout, task.verifier_timeout, task.build_timeout, task.memory_mb) == (90.0, 12.5, 30.0, 512)
    assert (task.workdir, task.family) == ("/workspace/app", "repair")
    assert task.guard == {"protected": ["/workspace/data"]}


@pytest.mark.parametrize(
    ("body", "line", "field"),
    [
        ("[environment]\ngpus = 1", 3, "environment.gpus"),
        ("[environment]\n\nmcp_servers = [{name = 'x'}]", 4, "environment.mcp_servers"),
        ("[[environment.mcp_servers]]\nname = 'x'", 2, "environment.mcp_servers"),
        ("[environment.healthcheck]\ncommand = 'x'", 2, "environment.healthcheck"),
        ("[environment]\nhealthcheck.command = 'x'", 3, "environment.healthcheck"),
        ("[environment]\ndocker_image = 'debian'", 3, "environment.docker_image"),
        ("[environment]\nos = 'windows'", 3, "environment.os"),
        ("[environment]\nnetwork_mode = 'allowlist'", 3, "environment.network_mode"),
        ("[environment]\nallow_internet = true", 3, "environment.allow_internet"),
        ("[environment]\nenv = {A = 'b'}", 3, "environment.env"),
        ("[environment]\nworkdir = '/app'", 3, "environment.workdir"),
        ("[environment]\nworkdir = '/workspace/../etc'", 3, "environment.workdir"),
        ("[environment]\nworkdri = '/workspace'", 3, "environment.workdri"),
        ("[environment]\nmemory_mb = true", 3, "environment.memory_mb"),
        ("[agent]\nallowed_hosts = ['example.test']", 3, "agent.allowed_hosts"),
        ("[agent]\ntimeout_sec = -1", 3, "agent.timeout_sec"),
        ("[agent]\ntimeout_sec = inf", 3, "agent.timeout_sec"),
        ("[agent]\ntimeout_sec = nan", 3, "agent.timeout_sec"),
        ("[agent]\nuser = 'root'", 3, "agent.user"),
        ("[verifier]\nenvironment_mode = 'shared'", 3, "verifier.environment_mode"),
        ("[[verifier.collect]]\ncommand = 'x'", 2, "verifier.collect"),
        ("[solution]\nenv = {A = 'b'}", 3, "solution.env"),
        ("[[steps]]\nname = 'one'", 2, "steps"),
        ("agent = 3", 2, "agent"),
        ("metadata = 3", 2, "metadata"),
        ("[metadata]\nfamily = 3", 3, "metadata.family"),
        ("[metadata]\nguard = 'x'", 3, "metadata.guard"),
        ("artifacts = []", 2, "artifacts"),
        ("artifacts = 'x'", 2, "artifacts"),
        ("artifacts = [1]", 2, "artifacts"),
        ("artifacts = ['out']", 2, "artifacts"),
        ("artifacts = ['/workspace/../tests']", 2, "artifacts"),
        ("artifacts = ['/tests']", 2, "artifacts"),
        ("artifacts = ['/logs/verifier']", 2, "artifacts"),
        ("artifacts = ['/logs/verifier/reward.txt']", 2, "artifacts"),
        ("artifacts = ['/logs']", 2, "artifacts"),
        ("artifacts = ['/']", 2, "artifacts"),
        ("artifacts = ['/workspace', '/workspace/out']", 2, "artifacts"),
        ("artifacts = ['/workspace', '/workspace']", 2, "artifacts"),
        ("artifacts = [{source = '/workspace', exclude = ['x']}]", 2, "artifacts"),
        ("artifacts = [{source = '/workspace', destination = '/tests'}]", 2, "artifacts"),
        ("surprise = 1", 2, "surprise"),
    ],
)
def test_what_is_not_done_is_refused_with_file_line_and_field(tmp_path: Path, body: str, line: int, field: str) -> None:
    text = refusal(make(tmp_path, SMALLEST + body + "\n"))
    assert f"task-1/task.toml line {line}: {field}: " in text


def test_broken_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    text = refusal(make(tmp_path, SMALLEST + "[agent\n"))
    assert "task.toml" in text
    assert "line 2" in text


@pytest.mark.parametrize("toml", ["", "[agent]\n", 'schema_version = "2.0"\n', "schema_version = 1.4\n"])
def test_an_absent_or_unknown_schema_version_is_refused(tmp_path: Path, toml: str) -> None:
    assert "schema" in refusal(make(tmp_path, toml))


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "solution/solve.sh", "tests/test.sh"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = make(tmp_path)
    (path / name).unlink()
    assert f"has no {name}" in refusal(path)


def test_a_missing_environment_folder_is_named(tmp_path: Path) -> None:
    path = make(tmp_path)
    (path / "environment").rmdir()
    assert "has no environment/" in refusal(path)


@pytest.mark.parametrize("instruction", [b"", b" \n\t\n", b"\xff\xfe", b"a\0b", b"x" * 200_000])
def test_an_unusable_instruction_is_refused(tmp_path: Path, instruction: bytes) -> None:
    assert "instruction.md" in refusal(make(tmp_path, instruction=instruction))


def test_links_and_special_files_are_refused(tmp_path: Path) -> None:
    path = make(tmp_path)
    (path / "environment" / "passwd").symlink_to("/etc/passwd")
    assert "link" in refusal(path)
    (path / "environment" / "passwd").unlink()
    os.mkfifo(path / "tests" / "pipe")
    assert "special file" in refusal(path)


def test_a_link_to_a_folder_is_not_walked_into(tmp_path: Path) -> None:
    path = make(tmp_path)
    (path / "environment" / "etc").symlink_to("/etc", target_is_directory=True)
    assert "environment/etc is a link" in refusal(path)


def test_a_dockerfile_that_only_places_files_is_passed_over(tmp_path: Path) -> None:
    dockerfile = b"# base\nFROM debian:12\nWORKDIR /workspace\nCOPY a.txt ./\n"
    assert read_task(make(tmp_path, files={**FILES, "environment/Dockerfile": dockerfile})).id == "task-1"


def test_a_dockerfile_that_does_more_needs_a_portable_setup(tmp_path: Path) -> None:
    dockerfile = {"environment/Dockerfile": b"FROM debian:12\nRUN apt-get install -y jq\n"}
    assert "Dockerfile line 2: RUN" in refusal(make(tmp_path / "without", files={**FILES, **dockerfile}))
    with_setup = {**FILES, **dockerfile, "environment/setup.sh": b"true\n"}
    assert read_task(make(tmp_path / "with", files=with_setup)).id == "task-1"
    image = SMALLEST + "[environment]\ndocker_image = 'debian:12'\n"
    assert read_task(make(tmp_path / "image", image, files=with_setup)).id == "task-1"


def test_a_name_that_is_no_plain_word_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path)
    odd = path.rename(tmp_path / "two\nlines")
    assert "task name" in refusal(odd)


def test_a_path_that_is_absent_or_no_folder_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path / "absent")
    (tmp_path / "file").write_text("x")
    assert "cannot read" in refusal(tmp_path / "file")


def test_a_folder_is_read_by_name_without_hidden_leftovers(tmp_path: Path) -> None:
    for name in ("b", "a"):
        make(tmp_path).rename(tmp_path / name)
    (tmp_path / ".a.123.tmp").mkdir()
    (tmp_path / "README.md").write_text("x")
    assert [task.id for task in read_tasks(tmp_path)] == ["a", "b"]
    with pytest.raises(TaskError, match="no task directories"):
        read_tasks(tmp_path / "a" / "environment")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode(errors="replace"))))
def test_random_bytes_as_task_toml_give_nothing_but_task_errors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "task-1"
    if not path.exists():
        make(tmp_path)
    (path / "task.toml").write_bytes(data)
    refusal(path)


_values = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
_KEYS = "artifacts source steps timeout_sec user env collect workdir gpus memory_mb cpus os family guard"
_keys = st.sampled_from(_KEYS.split())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    root=st.dictionaries(_keys, _values, max_size=3),
    tables=st.dictionaries(
        st.sampled_from(["task", "agent", "verifier", "environment", "solution", "metadata", "artifacts"]),
        st.dictionaries(_keys, _values, max_size=3),
        max_size=3,
    ),
)
def test_any_value_in_any_field_reads_or_gives_one_task_error(
    tmp_path: Path, root: dict[str, Any], tables: dict[str, Any]
) -> None:
    path = tmp_path / "task-1"
    if not path.exists():
        make(tmp_path)
    (path / "task.toml").write_text(_to_toml({"schema_version": "1.4", **root, **tables}), encoding="utf-8")
    outcome = ""
    try:
        read_task(path)
    except TaskError as error:
        outcome = str(error)
    assert len(outcome.splitlines()) <= 1


@pytest.mark.parametrize(
    "toml", ["a = " + "[" * 5000, "a = " + "9" * 5000, "a." * 5000 + "b = 1", "task.name." + "a." * 5000 + "b = 1"]
)
def test_toml_that_breaks_parsers_is_a_task_error(tmp_path: Path, toml: str) -> None:
    assert "task.toml" in refusal(make(tmp_path, SMALLEST + toml))


def test_what_is_written_reads_back_and_is_executable(tmp_path: Path) -> None:
    config = {
        "schema_version": "1.4",
        "artifacts": ["/workspace"],
        "metadata": {"family": 'odd "quotes"\n', "guard": {"hosts": []}, "deep": {"deeper": {"x": [1, 2.5, True]}}},
    }
    task = write_task(tmp_path / "t", config=config, instruction="Do\nthat.", files=FILES)
    assert task.metadata == config["metadata"]
    assert task.instruction == "Do\nthat."
    assert os.access(task.path / "tests" / "test.sh", os.X_OK)


def test_writing_the_same_again_keeps_it_and_writing_another_is_refused(tmp_path: Path) -> None:
    config = {"schema_version": "1.4"}
    first = write_task(tmp_path / "t", config=config, instruction="Do it.", files=FILES)
    before = (first.path / "task.toml").stat().st_ino
    assert write_task(tmp_path / "t", config=config, instruction="Do it.", files=FILES) == first
    assert (first.path / "task.toml").stat().st_ino == before
    with pytest.raises(TaskError, match="exists and differs"):
        write_task(tmp_path / "t", config=config, instruction="Do something else.", files=FILES)


@pytest.mark.parametrize(
    ("instruction", "files"),
    [
        ("", FILES),
        ("Do it.", {"tests/test.sh": b""}),
        ("Do it.", {**FILES, "../evil": b""}),
        ("Do it.", {**FILES, "/evil": b""}),
    ],
)
def test_a_task_that_would_not_read_back_leaves_nothing_behind(
    tmp_path: Path, instruction: str, files: Mapping[str, bytes]
) -> None:
    with pytest.raises(TaskError):
        write_task(tmp_path / "in" / "t", config={"schema_version": "1.4"}, instruction=instruction, files=files)
    assert [p for p in tmp_path.rglob("*") if p.name != "in"] == []


def test_the_hash_follows_names_modes_and_bytes(tmp_path: Path) -> None:
    path = make(tmp_path)
    original = bundle_hash(path)
    assert bundle_hash(path) == original
    (path / "tests" / "test.sh").chmod(0o755)
    executable = bundle_hash(path)
    (path / "tests" / "test.sh").write_bytes(b"other\n")
    other_bytes = bundle_hash(path)
    (path / "tests" / "test.sh").rename(path / "tests" / "test2.sh")
    assert len({original, executable, other_bytes, bundle_hash(path)}) == 4
