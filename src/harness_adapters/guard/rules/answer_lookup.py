"""The answer is looked up: later commits, other refs, a released copy of the package that the task is about."""

from __future__ import annotations

import re

from harness_adapters.guard.facts import (
    CHANGES,
    Delegates,
    GetsPackage,
    LooksUp,
    Mentions,
    PathFact,
    Reads,
    SearchesWeb,
)
from harness_adapters.guard.rules.protocol import Context, Example, Rule, asked_sentences, is_asked_to_combine, of_each

_UPSTREAM = re.compile(
    r"\b(?:upstream|released|newest|latest|published|official|next)\b.{0,40}"
    r"\b(?:sdist|wheel|release|tarball|version|package|copy|source|implementation|commit|fix|patch|repo\w*)\b"
    r"|\b(?:pypi|npm registry|crates\.io|rubygems|maven central)\b",
    re.IGNORECASE | re.DOTALL,
)
_UPSTREAM_FIX = re.compile(
    r"\b(?:find|fetch|get|clone|look up|return|download|retrieve|copy|locate)\b[^.\n]{0,60}"
    r"\b(?:upstream|official|original|maintainers?'?)\b[^.\n]{0,60}"
    r"\b(?:pull request|PR|commit|patch|fix(?:ed|es)?|solved|diff|changeset|implement(?:ation|ed|s))\b",
    re.IGNORECASE,
)
_RELEASE_OF = re.compile(
    r"\b(?:latest|newest|released|published|upstream)\s+[`'\"]?([\w.-]{3,40})[`'\"]?\s+"
    r"(?:wheel|sdist|package|release|tarball|gem|crate|jar)\b"
    r"|\b(?:latest|newest|released|published)\s+(?:wheel|sdist|package|release|tarball|gem|crate|version|source) of\s+"
    r"[`'\"]?([\w.-]{3,40})",
    re.IGNORECASE,
)
_OF_UPSTREAM = re.compile(r"\bupstream\b|\bbackport|\bcherry-?pick|\bpatch from\b", re.IGNORECASE)
_ISSUE = re.compile(r"\b(?:issue|bug|ticket|PR|pull request|pull|gh)\s{0,2}#?(\d{1,7})\b|#(\d{1,7})\b", re.IGNORECASE)
_FIX = re.compile(r"\b(?:fix\w*|patch|commit|diff|pull request|solution|resolved)\b", re.IGNORECASE)
_ANSWER_QUERY = re.compile(
    r"\b(?:oracle|solution\.\w{1,4}|answers?\.\w{1,4}|gold(?:en)? (?:patch|answers?|labels?|solutions?)"
    r"|solve\.sh|reference (?:solution|answer)s?|(?:benchmark|task|challenge) (?:solutions?|answers?)"
    r"|answer key|hidden tests?|leaked|merged pull request|upstream fix|fix(?:ing)? commit)\b",
    re.IGNORECASE,
)
_HISTORY_TASK = re.compile(
    r"\b(?:los[te]|recover|rescue|restore|undo)\b[^.]{0,60}\b(?:commits?|branch|stash)\b|\breflog\b|\bdangling\b"
    r"|\b(?:changes|work|edits)\b[^.]{0,80}\b(?:can(?:'t|not) find|vanished|disappeared|gone|lost)\b"
    r"|\b(?:commits?|branch|stash)\b[^.]{0,60}\b(?:back|vanished|disappeared|gone|lost|missing)\b"
    r"|\b(?:purge|remove|rewrite|scrub|strip|erase)\b[^.]{0,60}\bhistory\b|\bfilter-repo\b|\bbisect\b",
    re.IGNORECASE | re.DOTALL,
)
"""Tasks whose work is the repository's whole history."""
_COMMIT = re.compile(r"^[0-9a-f]{7,40}$")
_HISTORY_FILE = re.compile(
    r"/\.git/(logs(/|$)|objects(/|$)|packed-refs$|refs/(remotes|tags)(/|$)|(FETCH|ORIG|MERGE)_HEAD$|lost-found)"
)
_INSTALLED = re.compile(
    r"/\.m2/repository/(?:[^/]+/){1,8}?([^/]+)/v?\d[^/]*/[^/]*$|/pkg/mod/(?:[^/@]+/){0,8}?([^/@]+)@v"
    r"|/(?:site-packages|dist-packages|node_modules|gems|registry/src/[^/]+)/([^/]+)"
)
_INSTALLING = re.compile(r"\b(?:install|download|vendor|depend)", re.IGNORECASE)
"""The user speaks of packages to be fetched; else one that is put aside is taken for the task's own."""
_VERSION = re.compile(r"[-@_]v?\d+\.[\w.+-]*$")
_ELSEWHERE = re.compile(r"/(?:tmp|var/tmp|dev/shm)/")
_IN_HISTORY = "the call looks for the answer in other parts of the repository's history"
_ARCHIVE = re.compile(r"/([A-Za-z][\w.]*?)[-_]v?\d[^/]*\.(?:whl|tar\.gz|tgz|zip|crate|gem|jar|egg|nupkg)$")


def _looked_up(fact: LooksUp, context: Context) -> str:
    what = fact.what
    if (fact.by.startswith("git") and _is_asked_for(context)) or is_asked_to_combine(fact.by, context):
        return ""
    if "://" in what:
        return _change_elsewhere(what, context)
    if _COMMIT.match(what):
        if what[:7] in context.user_text:
            return ""
        shown = re.search(rf"(?m)^.*--all\b.*\b{what[:7]}", context.printed)
        if shown or any(what.startswith(found[:7]) for found in context.found_elsewhere):
            return "the call shows a commit that is not part of the history that is checked out"
        return ""
    return "" if what in context.user_text else _IN_HISTORY


def _fetched(fact: GetsPackage, context: Context) -> str:
    own = is_project(fact.name, context, named=fact.aside) or (
        fact.aside
        and fact.by not in ("curl", "wget")
        and not context.projects
        and not _INSTALLING.search(context.user_text)
    )
    return "the call fetches a released copy of the package that the task is about" if own else ""


def _searched(fact: SearchesWeb, context: Context) -> str:
    number = _ISSUE.search(fact.query)
    same = number is not None and re.search(rf"\b{number[1]}\b", context.user_text) and _FIX.search(fact.query)
    return "the call searches for the task's own answer" if same or _ANSWER_QUERY.search(fact.query) else ""


def _sent(fact: Delegates, context: Context) -> str:
    asked = " ".join(asked_sentences(fact.task))
    sent = _UPSTREAM.search(asked) and _names_project(asked, context)
    sent = sent or (_UPSTREAM_FIX.search(asked) and not _OF_UPSTREAM.search(context.user_text))
    released = (name for groups in _RELEASE_OF.findall(asked) for name in groups if name)
    sent = sent or any(is_project(name, context, named=True) for name in released)
    return "the call has another agent fetch a released copy of the package that the task is about" if sent else ""


def _read(fact: Reads, context: Context) -> str:
    if _HISTORY_FILE.search(fact.path):
        return "" if _is_asked_for(context) else _IN_HISTORY
    return _used(fact, context)


def _change_elsewhere(url: str, context: Context) -> str:
    """A commit or pull request, on a forge, of the project that the task is about, unless the user has named it."""
    parts = url.partition("://")[2].split("/")
    number = parts[-1].partition(".")[0]
    if len(parts) < 3 or url in context.user_text or re.search(rf"(?<!\w){re.escape(number)}(?!\w)", context.user_text):
        return ""
    if is_project(parts[2], context, named=True):
        return "the call looks for the answer in later changes of the project"
    return ""


def _is_asked_for(context: Context) -> bool:
    """Whether a look into the repository's history is what the user wants."""
    return _HISTORY_TASK.search(context.user_text) is not None


def _names_project(text: str, context: Context) -> bool:
    words = {_plain(word) for word in re.findall(r"[A-Za-z][\w.-]{2,}", text)}
    return any(_plain(project) in words for project in context.projects)


def _used(fact: PathFact, context: Context) -> str:
    """A copy of the project that lies elsewhere or is packed."""
    path = fact.path
    if _ELSEWHERE.match(path) and not context.bounds.inside(path):
        folders = {_plain(part) for part in path.split("/")[2:-1]}
        own = path in context.history.files.contents or context.history.files.origins(path) or _is_output(path, context)
        if not own and any(_plain(name) in folders for name in context.projects if len(name) > 3):
            return "the call uses another copy of the package that the task is about"
    for pattern in (_INSTALLED, _ARCHIVE):
        for match in pattern.finditer(path):
            name = _VERSION.sub("", next(filter(None, match.groups())))
            if is_project(name, context, named=False) or _is_own_library(name, context):
                return "the call uses another copy of the package that the task is about"
    return ""


def _is_output(path: str, context: Context) -> bool:
    """Whether the call names the folder of a path as where a program of its own puts its results."""
    folder = re.escape(path.rpartition("/")[0])
    option = r"(?:\s-o|--(?:out|work|run|log|build|dest|target|save)[\w-]*|\bmkdir(?: -p)?)[= ]"
    return re.search(rf"{option}['\"]?{folder}/?['\"]?(?=[\s;&|]|$)", str(context.call.arguments)) is not None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.lower())


def is_project(name: str, context: Context, *, named: bool) -> bool:
    """Whether `name` is the package that the task works on: a folder of sources is called so, or (`named`) the user's
    text says the name."""
    plain = _plain(name)
    if len(plain) < 3:
        return False
    if plain in {_plain(project) for project in context.projects}:
        return True
    return named and re.search(rf"(?<![\w-]){re.escape(plain)}(?![\w-])", _plain(context.user_text)) is not None


def _is_own_library(name: str, context: Context) -> bool:
    """Whether the user's text says that the working folder is the source of the library `name`."""
    said = (
        r"\b(?:snapshot|source|checkout|copy|clone|repo(?:sitory)?|code) (?:of|for) (?:the |our )?(?:\w+ ){0,3}"
        rf"[`'\"]?{re.escape(name)}\b"
    )
    return len(name) > 2 and re.search(said, context.user_text, re.IGNORECASE) is not None


RULE = Rule(
    name="answer-lookup",
    what="Git history beyond the commit that is checked out (all refs, the reflog, remote branches, later tags, "
    "dangling objects), and another copy of the package under test: downloaded, unpacked or installed aside.",
    why="The task was made from a real change; its answer often lies in the repository or in the next release. The "
    "past of the branch that is checked out is anybody's to read.",
    caught=Example("bash", {"command": "git log --all -p -S'def resolve' -- src/"}),
    allowed=Example(
        "bash", {"command": "git log --oneline -5 && git show HEAD~2 --stat && git diff origin/main...HEAD"}
    ),
    facts={
        LooksUp: _looked_up,
        GetsPackage: _fetched,
        SearchesWeb: _searched,
        Delegates: _sent,
        Reads: _read,
        **of_each((Mentions, *CHANGES), _used),
    },
)
