"""First steps: deterministic, disjoint, solvable in both oracle styles, and not otherwise."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest

from harness_adapters.errors import TaskError
from harness_adapters.sandbox import Sandbox, SandboxSpec, open_sandbox
from harness_adapters.sandbox.archive import pack, pack_dir, unpack
from harness_adapters.tasks.format import Task, bundle_hash, read_tasks
from harness_adapters.tasks.grading import collect, grade, prepare
from harness_adapters.tasks.sources.first_steps import FINAL, STYLES, TRAINED, UNSEEN, generate, oracle_turns
from harness_adapters.tasks.sources.first_steps.words import POOLS
from harness_adapters.tasks.sources.tables import FOLDER, load_tables, tables_of

COUNTS = {"train": 96, "dev": 40, "heldout": 40, "unseen": 20}
"""Tasks by split; `heldout` and `unseen` are one pool of words and tables, apart from the two others."""

PUBLISHED = "615d5f66daab3be559cc8927eef2ee4f2909e4f8c6804ac4bd5d9df2081d2dc6"


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Task]]:
    return generate(tmp_path_factory.mktemp("tasks"), seed=0, **COUNTS)


def hashes(tasks: dict[str, list[Task]]) -> list[str]:
    return [bundle_hash(task.path) for split in tasks.values() for task in split]


def made_of(tasks: Sequence[Task]) -> set[str]:
    return {word for task in tasks for word in task.metadata["first_steps"]["words"]}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    pools: dict[str, list[Task]], tmp_path: Path
) -> None:
    again = hashes(generate(tmp_path / "again", seed=0, **COUNTS))
    assert again == hashes(pools)
    other = hashes(generate(tmp_path / "other", seed=1, **COUNTS))
    assert not set(other) & set(again)


def test_a_larger_call_keeps_what_is_there_and_adds(tmp_path: Path) -> None:
    few = generate(tmp_path, seed=3, train=11, dev=3, heldout=5, unseen=2)
    before = hashes(few)
    more = generate(tmp_path, seed=3, train=30, dev=7, heldout=9, unseen=4)
    assert [more[split][: len(tasks)] for split, tasks in few.items()] == list(few.values())
    assert hashes(few) == before
    assert [len(tasks) for tasks in more.values()] == [30, 7, 9, 4]


def test_a_split_does_not_depend_on_the_others(pools: dict[str, list[Task]], tmp_path: Path) -> None:
    for split, count in COUNTS.items():
        alone = generate(tmp_path / split, seed=0, **{split: count})
        assert hashes(alone) == hashes({split: pools[split]})
        assert [path.name for path in (tmp_path / split).iterdir()] == [split]


def test_tasks_that_results_were_published_on_are_made_to_the_byte_as_they_were(pools: dict[str, list[Task]]) -> None:
    """The digest is of the tasks at the commit whose figures docs/results.md reports, `copy` alone of the unseen."""
    digest = hashlib.sha256()
    for task in [*pools["train"], *pools["heldout"], *(t for t in pools["unseen"] if t.family == "copy")]:
        digest.update(f"{task.id} {bundle_hash(task.path)}\n".encode())
    assert digest.hexdigest() == PUBLISHED


def test_families_are_balanced_and_the_unseen_ones_are_never_trained(pools: dict[str, list[Task]]) -> None:
    for split, count in COUNTS.items():
        families = Counter(task.family for task in pools[split])
        assert max(families.values()) - min(families.values()) <= 1
        assert set(families) == set(UNSEEN if split == "unseen" else TRAINED)
        assert len(pools[split]) == count
    assert len(TRAINED) >= 6
    assert len(UNSEEN) >= 4
    assert [task.family for task in pools["unseen"]][: len(UNSEEN)] == list(UNSEEN)
    assert not set(TRAINED) & set(UNSEEN)


def test_no_two_pools_share_a_word_a_file_name_or_a_table(pools: dict[str, list[Task]]) -> None:
    apart = {"train": pools["train"], "dev": pools["dev"], "heldout": [*pools["heldout"], *pools["unseen"]]}
    assert set(POOLS) == set(apart)

    def asked(tasks: Sequence[Task]) -> set[str]:
        return {name for task in tasks for name in re.findall(r"[\w-]+\.(?:txt|csv)", task.instruction)}

    def files(tasks: Sequence[Task]) -> set[str]:
        return {p.name for task in tasks for p in (task.path / "environment").iterdir()} - {"Dockerfile"}

    def inside(tasks: Sequence[Task]) -> set[str]:
        texts = [p.read_text() for task in tasks for p in (task.path / "environment").glob("*.txt")]
        return set(" ".join(texts).split())

    def columns(pool: str) -> set[str]:
        return {column for table in tables_of(pool) for column in table.numeric}

    for one, other in combinations(apart, 2):
        assert not set(POOLS[one]) & set(POOLS[other])
        assert not {table.name for table in tables_of(one)} & {table.name for table in tables_of(other)}
        assert not columns(one) & columns(other)
        for things in (made_of, asked, files, inside):
            assert things(apart[one])
            assert not things(apart[one]) & things(apart[other]), (things.__name__, one, other)
    assert all(len(tables_of(pool)) >= 3 for pool in apart)


def test_the_words_collide_with_no_table_no_command_and_no_wording(pools: dict[str, list[Task]]) -> None:
    words = {word for pool in POOLS.values() for word in pool}
    tasks = [task for split in pools.values() for task in split]
    commands = "\n".join(turn.arguments.get("command", "") for task in tasks for turn in oracle_turns(task, "careful"))
    programs = set(re.findall(r"(?:^|[|&] )([a-z]+)", commands, re.MULTILINE)) | {
        "cat",
        "ls",
        "rm",
        "sed",
        "cut",
        "sort",
        "tail",
    }
    assert not words & {table.name for table in load_tables()}
    assert {"rm", "cp", "tr", "awk", "mv"} <= programs
    assert not words & programs
    for task in tasks:
        used = [*task.metadata["first_steps"]["words"]]
        quoted = re.findall(r"[a-z]+", task.instruction.lower())
        assert sum(quoted.count(word) for word in set(used)) == len(used), task.instruction
    assert all(re.fullmatch(r"[a-z]{3,7}", word) for word in words)


def test_no_instruction_occurs_twice_and_no_near_copy_crosses_the_split(pools: dict[str, list[Task]]) -> None:
    def plain(task: Task) -> str:
        return " ".join(re.findall(r"[a-z0-9_]+", task.instruction.lower()))

    texts = {split: [plain(task) for task in tasks] for split, tasks in pools.items()}
    everything = [text for split in texts.values() for text in split]
    assert len(set(everything)) == len(everything)

    def content(task: Task) -> frozenset[str]:
        facts = task.metadata["first_steps"]
        return frozenset([*facts["words"], facts.get("table", ""), facts.get("column", "")]) - {""}

    for one, other in combinations(pools, 2):
        crossing = {(a.id, b.id) for a in pools[one] for b in pools[other] if content(a) == content(b)}
        assert not crossing or {one, other} == {"heldout", "unseen"}


def test_instructions_are_short_and_state_every_name(pools: dict[str, list[Task]]) -> None:
    for task in (task for split in pools.values() for task in split):
        assert len(task.instruction) <= 160
        assert task.instruction.isascii()
        facts = task.metadata["first_steps"]
        for needed in [*facts["words"], facts.get("table", ""), facts.get("column", "")]:
            assert needed in task.instruction


def test_answers_cannot_be_guessed(pools: dict[str, list[Task]]) -> None:
    for split, least in (("train", 6), ("dev", 4), ("heldout", 4)):
        for family in ("lines", "rows", "largest", "mean"):
            answers = Counter(t.metadata["first_steps"]["answer"] for t in pools[split] if t.family == family)
            assert max(answers.values()) <= 3
            assert len(answers) >= least


def test_no_smallest_value_is_nought_and_no_constant_solves_a_fifth_of_them(tmp_path: Path) -> None:
    tasks = [t for t in generate(tmp_path, seed=5, unseen=200)["unseen"] if t.family == "smallest"]
    answers = Counter(float(task.metadata["first_steps"]["answer"]) for task in tasks)
    assert len(tasks) == 40
    assert 0.0 not in answers
    assert max(answers.values()) < 8


def test_both_oracle_styles_are_stored_in_pis_form(pools: dict[str, list[Task]]) -> None:
    for task in (task for split in pools.values() for task in split):
        direct, careful = (oracle_turns(task, style) for style in STYLES)
        assert [turn.tool for turn in direct] == ["bash", None]
        assert [turn.tool for turn in careful] == ["bash", "bash", None]
        assert direct[-1].text == careful[-1].text == FINAL
        assert set(direct[0].arguments) == {"command"}
        assert direct[0] == careful[1]
        assert len(direct[0].arguments["command"]) <= 100


def test_an_absent_style_or_a_damaged_record_is_a_task_error(pools: dict[str, list[Task]], tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no oracle style"):
        oracle_turns(pools["train"][0], "wild")
    task = generate(tmp_path, seed=0, train=1)["train"][0]
    call = {"text": "", "tool": "bash", "arguments": {"command": "ls"}}
    final = {"text": "Done.", "tool": None, "arguments": {}}
    wrong = [{**call, "arguments": "ls"}, {**call, "text": None}, {**call, "tool": 3}, {**call, "more": 1}, final]
    turns = [json.dumps([turn, final]).encode() for turn in wrong]
    turns.append(json.dumps([call]).encode())
    for damage in (b"[", b"[1]", b'[{"text": "x"}]', b"3", b"{}", b"[]", b"[" * 100_000, *turns):
        (task.path / "solution" / "direct.json").write_bytes(damage)
        with pytest.raises(TaskError, match="not an oracle session"):
            oracle_turns(task, "direct")
    (task.path / "solution" / "direct.json").unlink()
    with pytest.raises(TaskError, match="no oracle session") as caught:
        oracle_turns(task, "direct")
    assert "solution/direct.json and solution/careful.json" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_the_session_shown_in_the_guide_to_tasks_is_read(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "tasks.md"
    (shown,) = re.findall(r"```json\n(.*?)```", guide.read_text(encoding="utf-8"), flags=re.DOTALL)
    task = generate(tmp_path, seed=0, train=1)["train"][0]
    (task.path / "solution" / "careful.json").write_text(shown, encoding="utf-8")
    *calls, final = oracle_turns(task, "careful")
    assert all(turn.tool == "bash" and set(turn.arguments) == {"command"} for turn in calls)
    assert (final.text, final.tool) == (FINAL, None)


def test_asking_for_more_than_there_is_and_writing_over_another_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(tmp_path, seed=0, train=1)
    with pytest.raises(TaskError, match="exists and differs"):
        generate(tmp_path, seed=1, train=1)
    monkeypatch.setitem(POOLS, "heldout", POOLS["heldout"][:3])
    deletions = 3 * 2  # words times wordings; the other families have more
    made = generate(tmp_path / "few", seed=0, unseen=deletions * len(UNSEEN))["unseen"]
    assert len(made) == deletions * len(UNSEEN)
    with pytest.raises(TaskError, match="'delete' has no further distinct task"):
        generate(tmp_path / "many", seed=0, unseen=deletions * len(UNSEEN) + 2)


def test_the_tasks_on_the_disk_read_back_equal(pools: dict[str, list[Task]]) -> None:
    for tasks in pools.values():
        assert read_tasks(tasks[0].path.parent) == sorted(tasks, key=lambda task: task.id)


ATTEMPT = """
rm -rf /workspace /tests /logs/verifier
cp -a /all/{id}/environment /workspace && cd /workspace && rm -f Dockerfile
({commands}) > /dev/null 2>&1
cp -a /all/{id}/tests /tests && cd / && sh /tests/test.sh > /dev/null 2>&1
cat /logs/verifier/reward.txt
"""


async def rewards(attempts: Sequence[tuple[Task, Sequence[str]]]) -> list[str]:
    """What the real test.sh of each task writes after some commands, one attempt after another in one sandbox."""
    tasks = {task.id: task for task, _ in attempts}
    files = {f"{name}/{inner}": data for name, t in tasks.items() for inner, data in unpack(pack_dir(t.path)).items()}
    sandbox = open_sandbox("bubblewrap", SandboxSpec())
    await sandbox.start()
    try:
        await sandbox.put(pack(files), "/all")
        found = []
        for task, commands in attempts:
            script = ATTEMPT.format(id=task.id, commands="\n".join(commands) or "true")
            result = await sandbox.exec(["sh", "-c", script], cwd="/", timeout=30)
            found.append(result.stdout.decode(errors="replace").strip())
        return found
    finally:
        await sandbox.kill()


def sample(pools: dict[str, list[Task]], each: int) -> list[Task]:
    """`each` tasks of every family of every pool."""
    kept: list[Task] = []
    for tasks in pools.values():
        for family in {task.family: None for task in tasks}:
            kept += [task for task in tasks if task.family == family][:each]
    return kept


def commands_of(task: Task, style: str) -> list[str]:
    return [turn.arguments["command"] for turn in oracle_turns(task, style) if turn.tool]


def test_both_oracles_solve_and_doing_nothing_does_not(pools: dict[str, list[Task]]) -> None:
    tasks = sample(pools, 3)
    assert asyncio.run(rewards([(task, commands_of(task, "direct")) for task in tasks])) == ["1"] * len(tasks)
    assert asyncio.run(rewards([(task, commands_of(task, "careful")) for task in tasks])) == ["1"] * len(tasks)
    assert asyncio.run(rewards([(task, []) for task in tasks])) == ["0"] * len(tasks)


def wrong_answers(task: Task) -> list[str]:
    """Shell commands that come close to the task and do not solve it."""
    facts = task.metadata["first_steps"]
    name, *others = (f"{word}.txt" for word in facts["words"])
    first, second = (*facts["words"], "", "")[:2]
    act = commands_of(task, "direct")[0]
    if task.family == "create":
        line = " ".join(facts["words"][1:])
        return [
            f"touch {name}",
            f"echo {line} > {name.upper()}",
            f"echo {line.upper()} > {name}",
            f"echo '{line} ' > {name}",
            f"printf '{line}\\n\\n' > {name}",
            f"printf '{line}\\r\\n' > {name}",
            f"echo {line[:-1]} > {name}",
            f"echo 'The line is: {line}' > {name}",
            f"mkdir {name}",
            f"echo {line} > ok; ln -s ok {name}",
            f"{act}; echo {line} >> {name}",
            f"{act}; truncate -s 100M {name}",
        ]
    if task.family == "append":
        return [f"echo {second} > {name}", f"{act}; {act}", f"printf '\\n{second}\\n' >> {name}", f"echo >> {name}"]
    if task.family == "rename":
        return [f"cp {name} {others[0]}", f"rm {name}; touch {others[0]}", f"rm {name}", f"{act}; echo >> {others[0]}"]
    if task.family == "copy":
        return [f"mv {name} {others[0]}", f"touch {others[0]}", f"ln -s {name} {others[0]}", f"{act}; rm {name}"]
    if task.family == "delete":
        kept = next(p.name for p in (task.path / "environment").glob("*.txt") if p.name != name)
        return [
            f"rm {kept}",
            "rm *.txt",
            f": > {name}",
            f"{act}; echo x >> {kept}",
            f"{act}; ln -s {kept} {name}",
        ]
    if task.family == "upper":
        return [
            f"cp {name} {others[0]}",
            f"tr A-Z a-z < {name} > {others[0]}",
            f"{act}; truncate -s -2 {others[0]}",
            f"sed 's/^./\\U&/' {name} > {others[0]}",
            f"tr a-z A-Z < {name} > {name.upper()}",
        ]
    if task.family == "merge":
        both = others[1]
        return [
            f"cat {others[0]} {name} > {both}",
            f"cp {name} {both}",
            f"cp {others[0]} {both}",
            f"cat {name} {others[0]}",
            f"{act}; {act.replace('>', '>>')}",
            f"paste {name} {others[0]} > {both}",
        ]
    if task.family == "tree":
        return [
            f"mkdir {first}",
            f"touch {second}.txt",
            f"mkdir {first} && touch {second}.txt",
            f"mkdir {first} && echo x > {first}/{second}.txt",
            f"mkdir -p {first}/{second}.txt",
            f"mkdir other && touch other/{second}.txt && ln -s other {first}",
            f"mkdir {first.upper()} && touch {first.upper()}/{second}.txt",
        ]
    return wrong_numbers(task, others[0] if task.family == "lines" else name, act)


def wrong_numbers(task: Task, answer: str, act: str) -> list[str]:
    value = float(task.metadata["first_steps"]["answer"])
    near = value * 1.002 if task.family == "mean" else math.nextafter(value, math.inf) + 1e-3
    table = task.metadata["first_steps"].get("table", "")
    column = re.search(r"column (\d+)", task.instruction)
    number = int(column[1]) if column else 0
    wrong = [
        f"touch {answer}",
        f"echo {near!r} > {answer}",
        f"echo {value + 1!r} > {answer}",
        f"echo {-value!r} > {answer}",
        f"echo 0 > {answer}",
        f"echo nan > {answer}",
        f"echo inf > {answer}",
        f"{act}; sed -i 's/^/The answer is /' {answer}",
        f"{act}; sed -i 's/$/ rows/' {answer}",
        f"{act}; cat {answer} > x; cat x >> {answer}",
        f"{act}; seq 0 100 > {answer}",
        f"{act}; mv {answer} {answer.upper()}",
        f"{act}; mv {answer} ok; ln -s ok {answer}",
    ]
    if task.family == "rows":
        wrong.append(f"wc -l < {table}.csv > {answer}")
    if task.family == "largest":
        wrong += [f"tail -n +2 {table}.csv | cut -d, -f{number} | sort -n | head -n 1 > {answer}"]
    if task.family == "smallest":
        wrong += [
            f"tail -n +2 {table}.csv | cut -d, -f{number} | sort -n | tail -n 1 > {answer}",
            f"cut -d, -f{number} {table}.csv | sort -n | head -n 1 > {answer}",
        ]
    if task.family == "mean":
        wrong += [f"awk -F, 'NR>1{{s+=${number}}}END{{print s/NR}}' {table}.csv > {answer}", act.replace("/(NR-1)", "")]
    return wrong


def test_near_misses_do_not_solve(pools: dict[str, list[Task]]) -> None:
    attempts = [
        (task, [wrong])
        for task in sample({"all": [*pools["train"], *pools["unseen"]]}, 1)
        for wrong in wrong_answers(task)
    ]
    found = asyncio.run(rewards(attempts))
    accepted = [commands for (_, commands), reward in zip(attempts, found, strict=True) if reward != "0"]
    assert accepted == []
    assert len(attempts) >= 110


def test_other_ways_to_the_same_answer_solve(pools: dict[str, list[Task]]) -> None:
    tasks = {task.family: task for task in reversed([*pools["train"], *pools["unseen"]])}

    def facts(family: str) -> tuple[str, ...]:
        return tuple(tasks[family].metadata["first_steps"]["words"])

    file, *line = facts("create")
    name, added = facts("append")
    folder, inner = facts("tree")
    (gone,), (old, new), (start, end, both) = facts("delete"), facts("upper"), facts("merge")
    rows, largest, mean, smallest = (
        tasks[family].metadata["first_steps"] for family in ("rows", "largest", "mean", "smallest")
    )
    attempts = [
        (tasks["create"], [f"printf '{' '.join(line)}' > {file}.txt"]),
        (tasks["create"], [f"echo x > {file}.txt; echo {' '.join(line)} | tee {file}.txt"]),
        (tasks["append"], [f"printf %s {added} >> {name}.txt"]),
        (tasks["append"], [f"sed -i '$a {added}' {name}.txt"]),
        (tasks["tree"], [f"install -D /dev/null {folder}/{inner}.txt"]),
        (tasks["rows"], [f"awk 'NR>1' {rows['table']}.csv | grep -c . > {rows['words'][0]}.txt"]),
        (tasks["largest"], [f"printf ' %s' {float(largest['answer'])!r} > {largest['words'][0]}.txt"]),
        (tasks["largest"], [f"echo {float(largest['answer']):e} > {largest['words'][0]}.txt"]),
        (tasks["mean"], [f"echo {float(mean['answer']) * 1.0009!r} > {mean['words'][0]}.txt"]),
        (tasks["delete"], [f"unlink {gone}.txt"]),
        (tasks["upper"], [f"sed 's/.*/\\U&/' {old}.txt | tee {new}.txt"]),
        (tasks["merge"], [f"cp {start}.txt {both}.txt; cat {end}.txt >> {both}.txt"]),
        (tasks["smallest"], [f"printf %s {float(smallest['answer'])!r} > {smallest['words'][0]}.txt"]),
    ]
    assert asyncio.run(rewards(attempts)) == ["1"] * len(attempts)


@pytest.mark.parametrize("kind", ["bubblewrap", "inprocess"])
def test_the_whole_way_from_the_agents_sandbox_to_the_grade(pools: dict[str, list[Task]], kind: str) -> None:
    async def session(kind: str, task: Task, style: str) -> float:
        def opened(spec: SandboxSpec) -> Sandbox:
            return open_sandbox(kind, spec)

        sandbox = opened(SandboxSpec())
        await sandbox.start()
        try:
            await prepare(sandbox, task, timeout=60)
            for command in commands_of(task, style) if style else []:
                await sandbox.exec(["bash", "-c", command], timeout=20)
            artifacts = await collect(sandbox, task)
        finally:
            await sandbox.kill()
        return (await grade(opened, task, artifacts, timeout=60)).reward

    for family in ("rename", "tree", "mean"):
        task = next(t for t in pools["heldout"] if t.family == family)
        assert asyncio.run(session(kind, task, "careful")) == 1.0
        assert asyncio.run(session(kind, task, "")) == 0.0


def test_every_shipped_table_is_plain_and_has_its_provenance() -> None:
    for table in load_tables():
        data = (FOLDER / f"{table.name}.csv").read_bytes()
        assert len(data) <= 60_000
        assert hashlib.sha256(data).hexdigest() == table.source["sha256"]
        assert table.csv() == data
        assert b'"' not in data
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert all(cell and cell == cell.strip() for row in table.rows for cell in row)
        assert all(math.isfinite(float(cell)) for name in table.numeric for cell in table.column(name))
        assert {"package", "version", "file", "licence", "origin", "changes", "source_sha256"} <= set(table.source)
    assert {path.stem for path in FOLDER.glob("*.csv")} == {table.name for table in load_tables()}
