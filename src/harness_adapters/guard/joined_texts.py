"""Texts that code in a language which is not parsed here puts together from literals, written as one.

Asymmetry: only literals side by side are joined; what variables hold is for `script_text`, and what a program works out
stays unknown.
"""

from __future__ import annotations

import re

_PIECE = r"(?:\"[\w./-]{0,40}\"|'[\w./-]{0,40}')"
_SIDE_BY_SIDE = re.compile(
    r"(?<=[\w./-])(?:\"\s{0,8}(?:[+.&^~]|\.\.|<>|\+\+|//)?\s{0,8}\"|'\s{0,8}(?:[+.]|\.\.)\s{0,8}')(?=[\w./-])"
)
_LIST = re.compile(
    rf"\[((?:\s{{0,8}}{_PIECE}\s{{0,8}},?){{2,8}})\s{{0,8}}\]\s{{0,8}}\.join\(\s{{0,4}}(?:\"([^\"\n]{{0,2}})\"|'([^'\n]{{0,2}})')?\s{{0,4}}\)"
)
_GO_LIST = re.compile(
    rf"\bstrings\.Join\(\s{{0,4}}\[\]string\{{((?:\s{{0,8}}{_PIECE}\s{{0,8}},?){{2,8}})\}}\s{{0,4}},\s{{0,4}}\"([^\"\n]{{0,2}})\"\s{{0,4}}\)"
)
_GLUE = re.compile(rf"\bconcat!\(((?:\s{{0,8}}{_PIECE}\s{{0,8}},?){{2,8}})\s{{0,8}}\)")
_CHAIN = re.compile(
    r"\b(?:Path(?:Buf)?::(?:new|from)|Path\.of|Paths\.get|Path)\(\s{0,4}\"([\w./-]{1,80})\"\s{0,4}\)"
    r"\s{0,8}\.(?:join|resolve|push|joinpath)\(\s{0,4}\"([\w./-]{1,80})\"\s{0,4}\)"
)
_PATH = re.compile(
    r"\b(?:Path\.of|Paths\.get|filepath\.Join|path\.(?:join|resolve|Join)|File\.join|Path\.Combine|new File|file\.path"
    rf"|joinpath)\(\s{{0,8}}(?:[\w.]{{1,40}}(?:\(\))?\s{{0,8}},)?((?:\s{{0,8}}{_PIECE}\s{{0,8}},?){{1,8}})\s{{0,8}}\)"
    rf"|\b\w{{1,20}}\.(?:join|resolve)\(((?:\s{{0,8}}{_PIECE}\s{{0,8}},?){{2,8}})\s{{0,8}}\)"
)
_DIVIDED = re.compile(r"(?<=[\w./-])\"\s{1,8}/\s{1,8}\"(?=[\w./-])")
"""Paths that a `/` between texts puts together."""
_LITERAL = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def with_joined(code: str) -> str:
    """The code with texts that are joined, and paths that are made of pieces, as one literal each."""
    if '"' in code or "'" in code:
        code = _SIDE_BY_SIDE.sub("", _DIVIDED.sub("/", code))
    if ".join(" in code:
        code = _LIST.sub(lambda m: _quoted(m[1], m[2] or m[3] or ""), code)
    if "strings.Join(" in code:
        code = _GO_LIST.sub(lambda m: _quoted(m[1], m[2]), code)
    if "concat!(" in code:
        code = _GLUE.sub(lambda m: _quoted(m[1], ""), code)
    code = _CHAIN.sub(lambda m: f'Path("{m[1]}/{m[2]}")', code)
    return _PATH.sub(lambda m: f"{m[0].partition('(')[0]}({_quoted(m[1] or m[2], '/')})", code)


def _quoted(pieces: str, sign: str) -> str:
    texts = [match[1] or match[2] or "" for match in _LITERAL.finditer(pieces)]
    joined = sign.join(texts)
    return f'"{joined.replace("//", "/")}"'
