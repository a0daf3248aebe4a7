"""Scrubbing keeps what it must: JSON, ids, unchanged bytes; and finds what is hidden in layers of encoding."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import Sampler

from harness_adapters.scrub import Scrubber
from harness_adapters.scrub.rules import RULES

SECRET = Sampler(7).of(next(rule.form for rule in RULES if rule.kind == "hf_token"))
PASSWORD = "".join(random.Random(3).choices(string.ascii_letters + string.digits, k=18)) + "7k"


@pytest.fixture(scope="module")
def scrubber() -> Scrubber:
    return Scrubber()


@pytest.fixture(autouse=True)
def _forgetful(scrubber: Scrubber) -> None:
    scrubber.learnt.clear()


def scrubbed(scrubber: Scrubber, value: Any, **options: Any) -> Any:
    return json.loads(scrubber.scrub(json.dumps(value, **options).encode()).data)


def test_only_the_changed_string_of_a_line_changes(scrubber: Scrubber) -> None:
    line = '{ "b" : 1.0e5,"a":[ 12345678901234567890123, "t\\u00e9 \\/ %s"] ,"b":2, "c":"\\ud800"}'
    result = scrubber.scrub((line % SECRET).encode())
    stand_in = result.data.decode().partition("<")[2].partition(">")[0]
    assert result.data.decode() == (line % f"<{stand_in}>").replace("\\/", "/")


def test_lines_without_findings_keep_every_byte(scrubber: Scrubber) -> None:
    data = b'{"a":  1}\r\n\n  {"text":"\\u0041 \\/"}\n{"x":NaN}\n'
    assert scrubber.scrub(data).data == data


def test_a_secret_is_found_under_escapes_and_in_nested_json(scrubber: Scrubber) -> None:
    inner = json.dumps({"command": f"echo {SECRET}\nls", "deep": json.dumps([SECRET])})
    out = scrubbed(scrubber, {"arguments": inner})
    arguments = json.loads(out["arguments"])
    assert SECRET not in json.dumps(out)
    assert arguments["command"].startswith("echo <hf_token:")
    assert arguments["command"].endswith(">\nls")
    assert json.loads(arguments["deep"])[0] == arguments["command"].split()[1]


def test_escaped_ascii_hides_nothing(scrubber: Scrubber) -> None:
    line = '{"t":"' + "".join(f"\\u{ord(c):04x}" for c in SECRET) + '"}'
    assert "hf_token" in scrubber.scrub(line.encode()).data.decode()


def test_equal_values_get_equal_stand_ins_and_others_their_own(scrubber: Scrubber) -> None:
    other = Sampler(8).of(next(rule.form for rule in RULES if rule.kind == "hf_token"))
    first = scrubbed(scrubber, [SECRET, other])
    second = scrubbed(scrubber, {"again": SECRET})
    assert first[0] == second["again"] != first[1]


def test_a_value_learnt_late_is_replaced_in_what_came_before(scrubber: Scrubber) -> None:
    bearer = "".join(random.Random(5).choices(string.ascii_letters + string.digits, k=40))
    lines = [json.dumps({"t": f"saw {bearer}"}), json.dumps({"t": f"Authorization: Bearer {bearer}"})]
    assert bearer not in scrubber.scrub("\n".join(lines).encode()).data.decode()


@pytest.mark.parametrize("key", ["id", "parentUuid", "tool_call_id", "toolCallId", "sessionID", "call_id", "leafUuid"])
def test_ids_stay_byte_for_byte(key: str, scrubber: Scrubber) -> None:
    value = "call_" + "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=400))
    record = {key: value, "text": f"password: {PASSWORD}"}
    out = scrubbed(scrubber, record)
    assert out[key] == value
    assert out["text"].startswith("password: <secret:")


def test_keys_are_scrubbed_and_paths_do_not_tell_them(scrubber: Scrubber) -> None:
    result = scrubber.scrub(json.dumps({SECRET: {"x": f"and {SECRET}"}}).encode())
    assert SECRET not in result.data.decode()
    assert all(SECRET not in finding.path for finding in result.findings)
    assert [finding.kind for finding in result.findings] == ["hf_token", "hf_token"]


def test_places_are_named_by_line_and_path(scrubber: Scrubber) -> None:
    lines = [json.dumps({"a": 1}), json.dumps({"m": {"content": [{"t": "x"}, {"t": SECRET}]}})]
    (finding,) = scrubber.scrub("\n".join(lines).encode()).findings
    assert (finding.line, finding.path) == (2, "m.content[1].t")


def test_a_key_file_is_one_secret_in_a_string_and_in_loose_lines(scrubber: Scrubber) -> None:
    body = "\n".join("".join(random.Random(n).choices(string.ascii_letters + string.digits, k=64)) for n in range(6))
    begin, end = ("-----" + word + " RSA PRIVATE" + " KEY-----" for word in ("BEGIN", "END"))
    pem = f"{begin}\n{body}\n{end}"
    out = scrubber.scrub(json.dumps({"t": f"cat key\n{pem}\nok"}).encode()).data.decode()
    assert json.loads(out)["t"].startswith("cat key\n<private_key:")
    assert out.endswith('>\\nok"}')
    loose = scrubber.scrub(b'{"a": 1}\n' + pem.encode() + b'\n{"b": 2}\n')
    assert loose.data.startswith(b'{"a": 1}\n<private_key:')
    assert loose.data.endswith(b'>\n{"b": 2}\n')
    assert loose.text_lines == tuple(range(2, 10))
    cut = scrubber.scrub(json.dumps({"t": f"{begin}\n{body}"}).encode()).data.decode()
    assert body.split("\n")[2] not in cut


def test_images_and_blobs_are_dropped_unless_kept() -> None:
    blob = "".join(random.Random(2).choices(string.ascii_letters + string.digits, k=600))
    image = "iVBORw0KGgo" + blob
    record = {
        "source": {"type": "base64", "data": image},
        "text": f"see data:image/png;base64,{image} there",
        "s": blob,
    }
    out = scrubbed(Scrubber(), record)
    assert out["source"]["data"] == "<image:dropped>"
    assert out["text"] == "see <image:dropped> there"
    assert out["s"] == "<blob:dropped>"
    assert scrubbed(Scrubber(keep_images=True), record) == record


def test_public_keys_paths_and_rulers_are_no_blobs(scrubber: Scrubber) -> None:
    key = "".join(random.Random(2).choices(string.ascii_letters + string.digits, k=500))
    for text in (f"ssh-rsa {key} x", "-" * 400, "/".join(["folder"] * 60), "0f" * 200):
        line = json.dumps({"t": text}).encode()
        assert scrubber.scrub(line).data == line


def test_stand_ins_of_an_earlier_run_keep_their_numbers() -> None:
    scrubber = Scrubber()
    old = json.dumps({"t": "was <hf_token:4>"}).encode()
    scrubber.reserve(old)
    assert scrubber.scrub(old).data == old
    assert scrubbed(scrubber, [SECRET]) == ["<hf_token:5>"]


FORMS = [rule.form for rule in RULES if rule.form]
PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "password=",
            "token: ",
            "Bearer ",
            '"api_key": "',
            "\\n",
            "\n",
            '"',
            "'",
            "@",
            "://",
            "/home/",
            "<",
            ">",
            "=",
            ":",
            ";",
            "&",
            " ",
            "\x00",
            "\x01",
        ]
    ),
    st.builds(lambda seed, rule: Sampler(seed).of(FORMS[rule % len(FORMS)]), st.integers(0, 99), st.integers(0, 999)),
    st.from_regex(r"[A-Za-z0-9+/]{20,40}", fullmatch=True),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3), inner.map(json.dumps)
    ),
    max_leaves=8,
)
SHARED = Scrubber()


def shape(value: Any) -> Any:
    """What scrubbing must not change: the structure and everything that is no string."""
    if isinstance(value, dict):
        return [shape(inner) for inner in value.values()]
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "" if isinstance(value, str) else repr(value)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(VALUES.map(json.dumps), VALUES.map(lambda v: json.dumps(v, ensure_ascii=False)), TEXTS), max_size=4
    )
)
def test_json_stays_json_and_a_second_run_changes_nothing(lines: list[str]) -> None:
    SHARED.learnt.clear()
    data = "\n".join(lines).encode("utf-8", errors="surrogatepass")
    once = SHARED.scrub(data).data
    assert SHARED.scrub(once).data == once
    assert not SHARED.scrub(once).findings
    for before, after in zip(data.split(b"\n"), once.split(b"\n"), strict=False):
        try:
            value = json.loads(before)
        except ValueError:
            break  # lines of a text may join
        if isinstance(value, dict | list):
            assert len(shape(json.loads(after))) == len(shape(value)) or not isinstance(value, list)
