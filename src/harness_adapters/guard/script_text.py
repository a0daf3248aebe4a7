"""Code in languages that are not parsed here (JavaScript, Perl, Ruby, awk …): judged by the words and literals in it.

Asymmetry: a wrong guess costs an honest call, so a literal counts as a path only where it looks like one, and the code
counts as changing files only where it holds a word that does.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from harness_adapters.guard.facts import (
    Connects,
    Creates,
    DumpsEnv,
    Evades,
    Mentions,
    Opaque,
    Reads,
    ReadsEnv,
    Touches,
    Writes,
)
from harness_adapters.guard.hosts import normalise, url_endpoints
from harness_adapters.guard.joined_texts import with_joined
from harness_adapters.guard.machine import DATA, Run
from harness_adapters.guard.programs.generic import add_path
from harness_adapters.guard.values import ANY

_LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`")
_BOUND = re.compile(
    r"""[$@]?\b(\w{1,40})\s{0,4}:?=\s{0,4}((?:"[^"\\\n]{0,200}"|'[^'\\\n]{0,200}')"""
    r"""(?:\s{0,4}(?:\.\.?|\+|~)\s{0,4}(?:"[^"\\\n]{0,200}"|'[^'\\\n]{0,200}')){0,8})"""
)
"""A variable that is bound to a text, or to texts joined by `.`, `+`, `..` or `~`."""
_APPENDED = re.compile(r"""[$]?\b(\w{1,40})\s{0,4}(?:\.\.?|\+|~)\s{0,4}(?:"([^"\\\n]{0,200})"|'([^'\\\n]{0,200})')""")
_INSERTED = re.compile(r"[$#]\{(\w{1,40})\}|\$(\w{1,40})")
_OPEN_MODE = re.compile(r"^(\+?[<>]{1,2}|\|)\s{0,4}(\S.*)$")
"""Perl's open with two arguments: the mode stands before the name."""
_NETWORK = re.compile(
    r"\bfetch\s*\(|\baxios\b|XMLHttpRequest|WebSocket"
    r"|(?:require\(|from)\s*['\"](?:node:)?(?:https?|net|tls|dgram|dns|http2|undici)['\"]"
    r"|LWP::|HTTP::Tiny|IO::Socket|use\s+Socket|Net::HTTP|open-uri|URI\.open|TCPSocket|Faraday|HTTParty"
    r"|file_get_contents\s*\(\s*['\"]https?|curl_init|fsockopen|download\.file|url\s*\(\s*['\"]http|socket\.connect"
    r"|\b(?:get|getstore|getprint|head|mirror|request|retrieve|download\w{0,20})\s{0,4}\(\s{0,4}['\"]https?:"
    r"|(?:require\(|from)\s*['\"](?:@aws-sdk/|aws-sdk|@google-cloud/|@azure/storage|@huggingface/)"
    r"|\binstall\.packages\([^)]{0,400}https?:|\b(?:remotes|devtools)::install_|\.(?:Get|Post|Head)\(\s{0,4}\"https?:"
    r"|\bPkg\.(?:add|develop|clone)\(|\bhttp::geturl|\burl\(\s{0,4}(?:sprintf\(|paste)|:httpc\b|\bHTTPoison\b|\bReq\.get|slurp\s+\"http"
    r"|\basyncnet\b|newHttpClient|\bsocket\.gen_tcp|:gen_tcp\b"
    r"|\bhttp\.(?:Get|Post|PostForm|Head|NewRequest\w*)\(|\bnet\.Dial|reqwest::|ureq::|\bnew HttpClient\("
    r"|HttpClient\.newH|HttpURLConnection|curl_easy"
    r"|/inet/(?:tcp|udp)/|Invoke-WebRequest|Net\.WebClient"
)
_CHANGES = re.compile(
    r"write|append|unlink|\brm(?:Sync|dir)?\b|rename|truncate|copyFile|symlink|chmod|mkdir|\bdelete\b|FileUtils"
    r"|file_put_contents|cat\s*\(.{0,400}file\s*=|>\s*['\"]|['\"]\s*[>+]{1,2}|['\"][wa]b?\+?['\"]|\bopen\b[^;]{0,400}>"
)
_RUNS = re.compile(
    r"\b(?:system|exec|execSync|spawn|spawnSync|execFile|execFileSync|popen|shell_exec|passthru|qx|Open3)\b\s*[({'\"`]"
)
_QUOTED_COMMAND = re.compile(
    r"(?:\bqx\s{0,4}|%x)(?:\(([^()\n]{1,400})\)|\{([^{}\n]{1,400})\}|\[([^\[\]\n]{1,400})\]|([/|!])([^/|!\n]{1,400})\4)"
)
_BACKTICKS = re.compile(r"`([^`\\\n]{1,400})`")
_BACKTICKS_RUN = re.compile(r"perl|ruby|php|\.(?:pl|rb|php)$")
"""Languages in which text in backticks is a command; in others it is a text."""
_ENV_DUMP = re.compile(
    r"\(System/getenv\)|\bSystem\.get_?[eE]nv\(\)|os:getenv\(\)|process\.report\b[\s\S]{0,400}?\benvironmentVariables\b|\w\(\s*process\.report\.getReport\(\)\s*[,)]|process\.report\.writeReport\("
    r"|process\.env(?![\w.\[?])|\bin\s+process\.env|Object\.(?:keys|entries|values)\(process\.env"
    r"|%ENV\b|\bENV\.(?:to_h|each|map|inspect|to_a|select|sort)|\bp\s+ENV\b|puts\s+ENV\b(?!\[)|\$_ENV\b(?!\[)"
    r"|os\.Environ\(\)|\benv::vars(?:_os)?\(|GetEnvironmentVariables\(\s*\)|getenv\(\s*\)|\bin\s+ENVIRON\b|os\.environ\b(?!\s*(?:\[|\.get))"
)
_ENV_READ = re.compile(
    r"process\.env\.([A-Za-z_]\w*)|process\.env\[\s*['\"](\w+)['\"]|\$?ENV\{\s*['\"]?(\w+)"
    r"|\bENV(?:\.fetch\(|\[)\s*['\"](\w+)|getenv\(\s*['\"](\w+)|\bENVIRON\[\s*\"(\w+)\""
)
_PROXY_WORDS = re.compile(
    r"(?:process\.env|ENV)\W{1,4}(?:https?|all|no)_proxy['\"\]}]*\s*=(?!=)|delete\s+process\.env\.\w*proxy",
    re.IGNORECASE,
)
_FOLDER_CALL = re.compile(
    r"\b(?:readdir(?:Sync)?|opendir|glob(?:Sync)?|Dir\.(?:glob|each_child|children|entries|foreach)|scandir"
    r"|(?:path|posix|File)\.(?:join|resolve)|(?:cp|rm)(?:Sync)?)\s*"
    r"[\(\s]\s*['\"]([\w./~*-]+)['\"]"
)
_AWK_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|\b(?:print|printf)\b|>>|[>()\[\];}\n]")
_AWK_LITERAL = re.compile(r"\s*\(?\s*\"((?:[^\"\\]|\\.)*)\"\s*\)?[ \t]*(\S|\n|)")
_AWK_VARIABLE = re.compile(r"\s*([A-Za-z_]\w*)\s*[;}\n]")
_PATH_FORMAT = re.compile(r"/[\w./-]{0,80}%[a-z][\w./%-]{0,80}")
_MAX_AWK = 8_192
_MAX_COMMANDS = 32


def script_facts(run: Run, code: str, language: str, writes: list[str] | None = None) -> None:
    """Adds what a script in some language may do; `writes` are files that it edits in place."""
    literals = _literals(with_joined(code))
    _network(run, code)
    changes = _CHANGES.search(code) is not None
    paths = [literal for literal in dict.fromkeys(literals) if literal != "/" and _looks_like_path(literal)]
    for path in paths:
        add_path(run, Touches if changes else Reads, path)
    for mode in filter(None, map(_OPEN_MODE.match, literals)):
        if _looks_like_path(mode[2]):
            add_path(run, Creates if ">" in mode[1] else Reads, mode[2])
    for match in _FOLDER_CALL.finditer(code):
        add_path(run, Touches if changes else Reads, match[1], deep=True)
    # A path put together from literals is still seen when they are read as one.
    glued = "".join(literals)
    if len(literals) > 1 and len(glued) < 4096:
        for piece in re.findall(r"/[\w./-]{4,}", glued):
            add_path(run, Mentions, piece)
    for literal in literals:
        if "%" in literal and literal.startswith("/") and _PATH_FORMAT.fullmatch(literal):
            add_path(run, Mentions, re.sub(r"%[a-z]", ANY, literal))
    for piece in _formatted(literals):
        add_path(run, Mentions, piece)
    if ("roxy" in code or "PROXY" in code or "Net::HTTP" in code) and _NO_PROXY.search(code):
        run.add(Evades(language, "skips the proxy"))
    if "env" in code or "ENV" in code or "Env" in code:
        _environment(run, code, language)
    if _RUNS.search(code):
        _commands(run, code, literals)
    if _BACKTICKS_RUN.search(language):
        quoted = [match[1] or match[2] or match[3] or match[5] for match in _QUOTED_COMMAND.finditer(code)]
        for command in [*quoted, *_BACKTICKS.findall(code)][:_MAX_COMMANDS]:
            run.shell.script(command, run.scope.fork(), DATA)
    if re.search(r"\beval\b\s{0,8}\(?[^\n]{0,200}(?:atob|decode|unpack|fromCharCode|Buffer\.from|pack)", code):
        run.add(Opaque(language, "code"))
    for name in writes or []:
        add_path(run, Writes, name)
        for path in run.paths(name):
            run.machine.put(language, path, code)
    if changes:
        texts = "\n".join(literal for literal in literals if len(literal) > 3)
        for literal in paths:
            for path in run.paths(literal):
                run.machine.put(language, path, texts)


def _environment(run: Run, code: str, language: str) -> None:
    if _ENV_DUMP.search(code):
        run.add(DumpsEnv(language))
    for match in _ENV_READ.finditer(code):
        run.add(ReadsEnv(language, next(group for group in match.groups() if group)))
    if _PROXY_WORDS.search(code):
        run.add(Evades(language, "changes a proxy variable"))


_NO_PROXY = re.compile(
    r"Net::HTTP\.new\([^()\n]{0,200},\s*nil\b|\bproxy\s*:\s*false\b|\bProxy\s*:\s*nil\b|\.no_proxy\(\)|Proxy\.NO_PROXY"
    r"|\bProxy:\s*func\([^)]{0,80}\)[^{]{0,60}\{\s*return nil,\s*nil"
    r"|UseProxy\s*=\s*false|CURLOPT_NOPROXY\s*(?:,|=>)\s*['\"]\*"
)


def _literals(code: str) -> list[str]:
    """The texts in the code, with variables that were bound to a text put in, and what `name + "text"` makes."""
    bound: dict[str, str] = {}
    for match in itertools.islice(_BOUND.finditer(code), 64):
        pieces = _LITERAL.findall(match[2])
        bound[match[1]] = "".join("".join(groups) for groups in pieces)[:1024]
    literals = ["".join(match.groups("")) for match in _LITERAL.finditer(code)]
    if not bound:
        return literals
    filled = [_INSERTED.sub(lambda m: bound.get(m[1] or m[2], m[0]), text) for text in literals[:512]]
    glued = [
        bound[match[1]] + (match[2] or match[3] or "")
        for match in itertools.islice(_APPENDED.finditer(code), 64)
        if match[1] in bound
    ]
    return [*filled, *literals[512:], *glued]


def _formatted(literals: list[str]) -> Iterator[str]:
    """Paths that a format makes of the literals that follow it."""
    for number, literal in enumerate(literals[:256]):
        holes = literal.count("%s")
        if 0 < holes <= 8 and len(literals) > number + holes:
            text = (
                literal.replace("%s", "{}").format(*literals[number + 1 : number + 1 + holes])
                if "{" not in literal
                else ""
            )
            if text.startswith("/") and _looks_like_path(text):
                yield text


def _looks_like_path(text: str) -> bool:
    return bool(re.fullmatch(r"[~./\w-][\w./*~@+\[\]?-]*", text)) and (
        "/" in text or bool(re.search(r"\.\w{1,8}$", text))
    )


def _network(run: Run, code: str) -> None:
    if not _NETWORK.search(code):
        return
    ends = url_endpoints(code)
    for end in ends:
        run.add(Connects("script", end.host, end.port))
    named = re.findall(r"(?:host(?:name)?|PeerAddr|PeerHost)['\"]?\s*(?:=>|:|=)\s*['\"]([\w.:-]+)['\"]", code)
    named += re.findall(
        r"(?:TCPSocket\.(?:new|open)|connect|createConnection|Net::HTTP\.\w+|fsockopen)"
        r"\s*\(?\s*(?:\d+\s*,\s*)?['\"]([\w.-]+)['\"]",
        code,
    )
    named += re.findall(r"/inet/(?:tcp|udp)/\d+/([\w.-]+)", code)
    for name in named:
        host = name.partition(":")[0]
        run.add(Connects("script", normalise(host)))
    only_serves = re.search(r"createServer|\.listen\(|TCPServer", code) and not re.search(
        r"fetch|request|\.get\(", code
    )
    if not ends and not named and not only_serves:
        run.add(Connects("script", ""))


def _commands(run: Run, code: str, literals: list[str]) -> None:
    """Literals of a script that runs commands are tried as shell text where they read like one."""
    seen = 0
    for literal in literals:
        if re.match(r"^[\w./~-]+(\s|$)", literal) and seen < _MAX_COMMANDS:
            seen += 1
            run.shell.script(literal, run.scope.fork(), DATA)
    if len(literals) > 1:
        run.shell.script(" ".join(word for word in literals if " " not in word)[:2048], run.scope.fork(), DATA)


def awk_facts(run: Run, program: str, assignments: list[str], in_place: list[str]) -> None:
    """Adds what an awk program does beside reading its operands: redirects, pipes, commands, the environment."""
    if len(program) > _MAX_AWK:
        run.add(Opaque("awk", "size"))
        return
    if re.search(r"\bin\s+ENVIRON\b", program):
        run.add(DumpsEnv("awk"))
    for match in re.finditer(r"ENVIRON\[\s*\"(\w+)\"", program):
        run.add(ReadsEnv("awk", match[1]))
    if "/inet/" in program:
        _network(run, program)
    for start, rest in re.findall(r"\b(\w{1,40})[ \t]{1,4}\"([^\"\\\n]{1,200})\"", program)[:64]:
        bound = re.search(rf"\b{start}[ \t]{{0,4}}=[ \t]{{0,4}}\"([^\"\\\n]{{1,200}})\"", program)
        if bound and _looks_like_path(bound[1] + rest):
            add_path(run, Mentions, bound[1] + rest)
    joined = re.sub(r"\"[ \t]{1,4}\"", "", program)
    for piece in re.findall(r"\"(/[\w./-]{4,200})\"", joined)[:64] if joined != program else ():
        add_path(run, Mentions, piece)
    for piece in _formatted([match[1] for match in re.finditer(r"\"((?:[^\"\\]|\\.)*)\"", program)]):
        add_path(run, Mentions, piece)
    known = dict(a.split("=", 1) for a in assignments if "=" in a)
    for target, append in _awk_outputs(program):
        add_path(run, Writes if append else Creates, known.get(target, target))
    for command in re.findall(r"\bsystem\s*\(\s*\"((?:[^\"\\]|\\.)*)\"", program):
        run.shell.script(command.replace('\\"', '"'), run.scope.fork(), DATA)
    for command in re.findall(r"\"((?:[^\"\\]|\\.)*)\"\s*\|\s*getline", program) + re.findall(
        r"\|&?\s*\"((?:[^\"\\]|\\.)*)\"", program
    ):
        run.shell.script(command.replace('\\"', '"'), run.scope.fork(), DATA)
    for name in re.findall(r"getline(?:\s+\w+)?\s*<\s*\"((?:[^\"\\]|\\.)*)\"", program):
        add_path(run, Reads, name)
    for name in in_place:
        add_path(run, Writes, name)


def _awk_outputs(program: str) -> list[tuple[str, bool]]:
    """Targets of `print … > target`: a `>` outside parentheses and strings after a print, as awk's grammar has it."""
    found: list[tuple[str, bool]] = []
    printing = False
    depth = 0
    for match in _AWK_TOKEN.finditer(program):
        token = match[0]
        if token in ("print", "printf"):
            printing, depth = True, 0
        elif token in "([":
            depth += 1
        elif token in ")]":
            depth -= 1
        elif token in ";}\n" and depth <= 0:
            printing = False
        elif token in (">", ">>") and printing and depth <= 0:
            printing = False
            found.append((_awk_target(program, match.end()), token == ">>"))
    return [(target, append) for target, append in found if not target.startswith("/dev/std")]


def _awk_target(program: str, start: int) -> str:
    """The file name after a `>`: a literal, a variable's name, or unknown; a literal that goes on ends in `ANY`."""
    literal = _AWK_LITERAL.match(program, start)
    if literal:
        return literal[1] + (ANY if literal[2] not in ("", ";", "}", "\n") else "")
    variable = _AWK_VARIABLE.match(program, start)
    return variable[1] if variable else ANY
