"""On a hub one place is declared, not all that anybody publishes there; a domain declares its own subdomains alone."""

from __future__ import annotations

import pytest

from harness_adapters.guard import Guard, GuardPolicy
from harness_adapters.guard.hosts import bare_endpoint
from harness_adapters.guard.hubs import declares
from harness_adapters.records import Call, Decision, ToolMap

TOOLS = ToolMap("none", {})


def fetches(url: str, *, user: str = "", hosts: tuple[str, ...] = ()) -> bool:
    """Whether a task with this text and these hosts may fetch the URL."""
    guard = Guard(GuardPolicy(hosts=hosts), TOOLS)
    call = Call("c", "bash", {"command": f"curl -sL {url}"})
    verdict = guard.judge(call, declared=["bash"], messages=[{"role": "user", "content": user}])
    return verdict.decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("named", "same"),
    [
        ("https://github.com/acme/tool", "https://raw.githubusercontent.com/acme/tool/main/data.csv"),
        ("https://github.com/acme/tool", "https://api.github.com/repos/acme/tool/contents/x"),
        ("github.com/acme/tool", "https://codeload.github.com/Acme/Tool/tar.gz/main"),
        ("git@github.com:acme/tool.git", "https://github.com/acme/tool/archive/main.zip"),
        ("https://huggingface.co/datasets/acme/rows", "https://huggingface.co/api/datasets/acme/rows"),
        ("https://github.com/acme", "https://github.com/acme/tool"),
        ("https://gitlab.com/acme/tool.", "https://gitlab.com/acme/tool/-/raw/main/a.txt"),
    ],
)
def test_a_place_that_the_task_names_is_allowed_in_all_its_spellings(named: str, same: str) -> None:
    assert fetches(same, user=f"Use {named} for this.")


@pytest.mark.parametrize(
    ("named", "other"),
    [
        ("https://github.com/acme/tool", "https://github.com/acme/answers"),
        ("https://github.com/acme/tool", "https://raw.githubusercontent.com/evil/tool/main/x"),
        ("https://huggingface.co/datasets/acme/rows", "https://huggingface.co/datasets/acme/answers"),
        ("https://s3.amazonaws.com/open-data/a.csv", "https://s3.amazonaws.com/hidden-data/a.csv"),
        ("https://www.kaggle.com/datasets/acme/rows", "https://www.kaggle.com/datasets/acme/solutions"),
    ],
)
def test_another_place_on_the_same_hub_is_not(named: str, other: str) -> None:
    assert not fetches(other, user=f"Use {named} for this.")


def test_a_bare_hub_in_the_policy_or_the_text_declares_all_of_it() -> None:
    assert fetches("https://github.com/acme/tool", hosts=("github.com",))
    assert fetches("https://github.com/acme/tool", user="Hosts you may use: github.com")
    assert not fetches("https://github.com/acme/other", hosts=("github.com/acme/tool",))


@pytest.mark.parametrize(
    ("declared", "host", "expected"),
    [
        ("lib.example", "docs.lib.example", True),
        ("lib.example", "lib.example.evil.example", False),
        ("lib.example", "notlib.example", False),
        ("acme.github.io", "x.acme.github.io", True),
        ("github.io", "evil.github.io", False),
        ("co.uk", "evil.co.uk", False),
        ("amazonaws.com", "bucket.s3.amazonaws.com", False),
        ("vercel.app", "evil.vercel.app", False),
        ("docs.lib.example", "lib.example", False),
    ],
)
def test_a_domain_declares_its_subdomains_unless_strangers_live_below_it(
    declared: str, host: str, expected: bool
) -> None:
    assert declares(declared, host) is expected
    assert fetches(f"https://{host}/x", hosts=(declared,)) is expected


@pytest.mark.parametrize(
    "client", ["hf download acme/rows", "gh repo clone acme/rows", "kaggle datasets download acme/rows"]
)
def test_a_hubs_client_is_bound_to_the_place_it_is_told(client: str) -> None:
    host = {"hf": "huggingface.co", "gh": "github.com", "kaggle": "kaggle.com"}[client.split()[0]]
    for name, expected in (("rows", Decision.ALLOW), ("other", Decision.BLOCK)):
        guard = Guard(GuardPolicy(hosts=(f"{host}/acme/{name}",)), TOOLS)
        call = Call("c", "bash", {"command": client})
        assert guard.judge(call, declared=["bash"], messages=[]).decision is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("gh pr create --head acme/feature --title x", Decision.ALLOW),
        ("gh issue view 3 -R evil/answers", Decision.BLOCK),
        ("gh api repos/evil/answers/contents/solve.py", Decision.BLOCK),
        ("gh api repos/acme/rows/contents/a.csv", Decision.ALLOW),
    ],
)
def test_a_forges_client_is_told_its_repository_by_its_options(command: str, expected: Decision) -> None:
    guard = Guard(GuardPolicy(hosts=("github.com/acme/rows",)), TOOLS)
    call = Call("c", "bash", {"command": command})
    assert guard.judge(call, declared=["bash"], messages=[]).decision is expected


def test_a_path_that_hides_the_place_behind_an_escape_is_the_same_place() -> None:
    assert bare_endpoint("github.com/ac%6De/tool").host == "github.com/acme/tool"
    assert bare_endpoint("example.org/a/b").host == "example.org"
