"""Globs against paths: exact on known ones, sound on wild cards, and asking for evidence where a piece is unknown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from guard_support import judge_call
from hypothesis import given
from hypothesis import strategies as st

from harness_adapters.guard.paths import Globs, absolute, follow
from harness_adapters.guard.values import ANY, DEEP, MADE, STAR

SEGMENT = st.text("ab.", min_size=1, max_size=3).filter(lambda s: s not in (".", ".."))
GLOB = st.lists(st.one_of(SEGMENT, st.sampled_from(["*", "**", "a*", "*b"])), min_size=1, max_size=4)
SHELL = st.lists(st.one_of(SEGMENT, st.sampled_from([STAR, "a" + STAR, DEEP])), min_size=1, max_size=4)


def _globs(*patterns: str) -> Globs:
    return Globs(patterns, cwd="/w", home="/h")


def _oracle(parts: list[str]) -> re.Pattern[str]:
    return re.compile(
        "".join("(?:/[^/]+)*" if p == "**" else "/" + re.escape(p).replace(r"\*", "[^/]*") for p in parts)
    )


@given(GLOB, st.lists(SEGMENT, min_size=1, max_size=4))
def test_a_known_path_meets_a_glob_exactly_when_the_glob_matches_it(glob: list[str], path: list[str]) -> None:
    name = "/" + "/".join(path)
    assert _globs("/" + "/".join(glob)).meets(name) == bool(_oracle(glob).fullmatch(name))


@given(GLOB, SHELL, st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=4))
def test_a_wild_path_meets_every_glob_that_one_of_its_matches_meets(
    glob: list[str], shell: list[str], path: list[str]
) -> None:
    if glob[0] == "**" and not shell[-1].strip(STAR + DEEP):
        return  # "every file here" does not point at a file that may lie anywhere
    name = "/" + "/".join(path)
    as_glob = [part.replace(STAR, "*").replace(DEEP, "**") for part in shell]
    if _oracle(glob).fullmatch(name) and _oracle(as_glob).fullmatch(name):
        assert _globs("/" + "/".join(glob)).meets("/" + "/".join(shell))


@pytest.mark.parametrize(
    ("pattern", "path", "meets"),
    [
        ("/logs/verifier/**", f"/logs/verifier/{ANY}", True),
        ("/logs/verifier/**", f"/{ANY}/verifier/reward.txt", True),
        ("/logs/verifier/**", f"/logs/ver{ANY}", True),
        ("/logs/verifier/**", f"/w/{ANY}", False),
        ("/logs/verifier/**", f"/{MADE}", False),
        ("/tests/**", f"/{ANY}/tests/a.py", False),
        ("tests/**", f"/w/{ANY}.txt", False),
        ("tests/**", f"/w/tests/{ANY}", True),
        ("tests/**", "/w/tests", True),
        ("tests/**", "/w/repo/tests/a.py", True),
        ("tests/**", "/tmp/tests/a.py", False),
        ("data.csv", "/w/out/data.csv", False),
        ("~/x/**", "/h/x/y", True),
        ("$HOME/x/**", "/h/x/y", True),
        ("tests/**", f"/w/{DEEP}/*.pyc".replace("*", STAR), False),
        ("tests/**", f"/w/{DEEP}/*.py".replace("*", STAR), True),
        ("/**/.env", f"/w/{STAR}", False),
    ],
)
def test_unknown_pieces_need_evidence_and_wild_cards_do_not(pattern: str, path: str, meets: bool) -> None:
    assert _globs(pattern).meets(path) is meets


@pytest.mark.parametrize(
    ("path", "deep", "meets"),
    [("/logs", True, True), ("/", True, True), ("/logs", False, False), ("/log", True, False)],
)
def test_a_folder_above_counts_only_for_what_goes_deep(path: str, deep: bool, meets: bool) -> None:
    assert _globs("/logs/verifier/**").meets(path, deep=deep) is meets


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a/../b//c/.", "/w/b/c"),
        ("~/x", "/h/x"),
        ("/../../etc", "/etc"),
        ("file:///a/b", "/a/b"),
        ("/proc/self/root/a", "/a"),
        ("/proc/123/cwd/a", "/w/a"),
        ("", "/w"),
    ],
)
def test_paths_are_made_absolute_as_the_kernel_would(text: str, path: str) -> None:
    assert absolute(text, "/w", "/h") == path


def test_links_are_followed_and_a_circle_ends() -> None:
    assert follow("/w/v/reward.txt", {"/w/v": "/logs/verifier"}) == "/logs/verifier/reward.txt"
    follow("/a/x", {"/a": "/b", "/b": "/a"})


@pytest.mark.parametrize("path", ["@/logs/verifier/reward.txt", "@../logs/verifier/reward.txt"])
@pytest.mark.parametrize(("tool", "rest"), [("write", {"content": "1"}), ("edit", {"edits": []}), ("read", {})])
def test_a_mention_mark_before_a_path_hides_nothing(tool: str, rest: dict[str, Any], path: str) -> None:
    assert judge_call(tool, {"path": path, **rest}).rule == "reward-write"


def test_an_odd_space_in_a_path_is_the_space_a_harness_makes_of_it() -> None:
    policy = {"protected": ["my tests/**"]}
    assert judge_call("write", {"path": "my\u202ftests/a.py", "content": ""}, policy).rule == "test-edit"
