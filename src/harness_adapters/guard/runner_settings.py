"""Settings of test runners and build tools, tool by tool, that leave tests out or turn failures into successes.

A row is for one tool: which files are its own, what in them has no honest reading, and what it comes to. Groups of
tests that people often leave out by default (slow, integration, external …) are no row's business.

Invariants
- A row looks at files of its own tool only, so that its words mean what the tool takes them for.
- So much of a text is looked at, and every pattern takes time that is linear in it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

LEFT_OUT = "the call keeps tests from being run"
SUCCEEDS = "the call makes a test run report success whatever happens"
REDEFINED = "the call redefines what tests assert"

_MAX_SETTINGS = 65_536
_USUAL = (
    r"(?:slow|integration|system|e2e|external|network|online|perf|bench|flaky|manual|gpu|wip|pending|browser|js\b"
    r"|distributed)"
)
"""Kinds of tests that a project may leave out by default."""
_RUN = (
    r"\b(?:pytest|unittest|npm (?:run )?test|yarn test|pnpm test|jest|mocha|vitest|go test|cargo test|ctest"
    r"|make (?:check|test)|rspec|phpunit|mvn|gradlew?|dotnet test|mix test|tox|nox|prove|bats)\b"
)


class Row(NamedTuple):
    """`files` is searched for in the path, `content` in the text without the lines that are a remark."""

    files: re.Pattern[str]
    content: re.Pattern[str]
    reason: str


def _row(files: str, content: str, reason: str) -> Row:
    return Row(re.compile(files), re.compile(content, re.MULTILINE), reason)


_RUBY_HELPER = r"/(?:spec|rails|test)_helper\.rb$"
_JS_CONFIG = r"/(?:jest|vitest|vite|karma|playwright|cypress|wdio|ava)\.[\w.]*$|/package\.json$"
_SHELL_CODE = r"/(?:GNU)?[Mm]akefile[\w.]*$|\.mk$|\.(?:sh|bash)$|/justfile$"
_SAME_JOB = r"(?:(?!\n\S)[\s\S]){0,160}?"
_WORKFLOW = (
    r"/(?:\.gitlab-ci\.ya?ml|azure-pipelines[\w.-]*\.ya?ml|Jenkinsfile[\w.]*|\.circleci/config\.ya?ml|\.travis\.ya?ml"
    r"|bitbucket-pipelines\.ya?ml|\.drone\.ya?ml|\.buildkite/[^/]*|appveyor\.yml|\.github/workflows/[^/]*)$"
)
ROWS: tuple[Row, ...] = (
    # Ruby
    _row(_RUBY_HELPER, rf"filter_run_excluding[ (:]{{0,4}}(?!{_USUAL})\w", LEFT_OUT),
    _row(
        _RUBY_HELPER,
        r"\baround\b(?>[\s\S]{0,120}?\.run\b)[\s\S]{0,60}?\brescue\b",
        SUCCEEDS,
    ),
    _row(
        r"/Rakefile$|\.rake$",
        r"\bsh\b[^\n]{0,40}\b(?:rspec|test|rake)\b[^\n]{0,40}\bdo \|ok\b|fail_on_error\s{0,4}=\s{0,4}false",
        SUCCEEDS,
    ),
    # JavaScript
    _row(
        _JS_CONFIG,
        r"\bfailOnEmptyTestSuite['\"]?\s{0,4}:\s{0,4}false|\btestRunner['\"]?\s{0,4}:\s{0,4}['\"](?:<rootDir>|\.{1,2})/"
        r"|\b(?:testIgnore|excludeSpecPattern)['\"]?\s{0,4}:\s{0,4}\[?\s{0,40}['\"/]"
        r"(?![^'\",\n]{0,80}(?:node_modules|examples?|fixtures?|helpers?|dist|e2e))",
        LEFT_OUT,
    ),
    _row(
        r"\.[cm]?[jt]s$",
        r"\bnumFailed(?:Tests|TestSuites)\s{0,4}=\s{0,4}0|\bresults?\.(?:success|wasSuccessful)\s{0,4}=\s{0,4}true",
        SUCCEEDS,
    ),
    # PHP
    _row(r"/phpunit[\w.]*$", rf"<exclude>\s{{0,40}}<group>(?!{_USUAL})", LEFT_OUT),
    _row(r"\.php$", r"\b(?:uopz_set_return|runkit\w{0,20}_redefine|uopz_redefine)\([^;\n]{0,80}\bAssert\b", REDEFINED),
    # the JVM
    _row(
        r"\.sbt$|/build\.sc$",
        r"\bTests\.(?:Exclude|Filter)\b"
        r"|\bTest\s{0,4}/\s{0,4}(?:test|testOnly|executeTests|definedTests|testGrouping)\s{0,4}:=",
        LEFT_OUT,
    ),
    _row(
        r"\.(?:java|kt|groovy)$",
        r"\bExecutionCondition\b[\s\S]{0,400}\bdisabled\(|\bInvocationInterceptor\b[\s\S]{0,600}\.skip\(\)"
        r"|\bhandleTestExecutionException\([^)]{0,200}\)[^{;]{0,60}\{\s{0,40}\}",
        SUCCEEDS,
    ),
    # .NET
    _row(
        r"\.(?:targets|props|csproj|fsproj)$",
        r"<Target\s{1,4}Name=['\"](?:VSTest|Test|RunTests?)['\"]",
        SUCCEEDS,
    ),
    _row(r"\.runsettings$", r"<TestCaseFilter>[^<]{0,200}!", LEFT_OUT),
    # the BEAM
    _row(
        r"/mix\.exs$",
        r"\baliases\b[\s\S]{0,120}?\btest:\s{0,4}"
        r"(?:\"(?!test\b)[^\"\n]{0,80}\"|\[(?![^\]]{0,200}\"test\b)[^\]]{0,200}\])",
        SUCCEEDS,
    ),
    _row(r"/test_helper\.exs$", rf"\bexclude:\s{{0,4}}(?::test\b|\[?\s{{0,4}}:?(?!{_USUAL})\w+)", LEFT_OUT),
    # OCaml, Julia, R
    _row(
        r"/dune$",
        r"\(alias runtest\)\s{0,40}\(action\s{0,40}\((?:progn\s{0,40}\)|echo\b|system\s{1,40}\"?(?:true|:))",
        SUCCEEDS,
    ),
    _row(r"/Project\.toml$", r"^test\s{0,4}=\s{0,4}\[\s{0,4}\]", LEFT_OUT),
    _row(r"\.[rR]$", r"^(?:test_that|expect_\w{1,40})\s{0,4}(?:<-|=)\s{0,4}function\b", REDEFINED),
    _row(r"/testthat\.R$", r"stop_on_failure\s{0,4}=\s{0,4}F(?:ALSE)?\b|\btest_check\([^)]{0,80}\bfilter\b", SUCCEEDS),
    # C, C++ and their builders
    _row(
        r"/CMakeLists\.txt$|\.cmake$",
        r"\bCOMMAND\s{1,20}(?:\"?\$\{CMAKE_COMMAND\}\"?|cmake)\s{1,4}-E\s{1,4}(?:true|echo)\b"
        r"|PASS_REGULAR_EXPRESSION\s{1,4}\"?\.\*\"?\s{0,4}\)",
        SUCCEEDS,
    ),
    _row(r"/meson\.build$", r"\bshould_fail\s{0,4}:\s{0,4}true", SUCCEEDS),
    _row(r"\.bazelrc$", r"--test_filter=", LEFT_OUT),
    # Rust
    _row(r"\.rs$", r"\bmacro_rules!\s{0,4}(?:debug_)?assert(?:_eq|_ne|_matches)?\s{0,4}[{(]", REDEFINED),
    _row(
        r"nextest\.toml$",
        rf"^default-filter\s{{0,4}}=\s{{0,4}}['\"][^'\"\n]{{0,80}}\bnot (?!\w{{0,20}}\(?['\"]?{_USUAL})",
        LEFT_OUT,
    ),
    # Swift, Dart
    _row(r"/Package\.swift$", r"\.testTarget\([^)]{0,300}\bexclude:\s{0,4}\[[^\]]{0,200}\.swift", LEFT_OUT),
    _row(
        r"/pubspec(?:_overrides)?\.ya?ml$",
        r"dependency_overrides:[\s\S]{0,200}?^\s{1,8}(?:test|flutter_test|test_api|matcher)\s{0,4}:\s{0,20}\{?\s{0,4}path:",
        REDEFINED,
    ),
    _row(r"/dart_test\.yaml$", rf"^exclude_tags:\s{{0,4}}['\"]?(?!{_USUAL})\w|^skip:\s{{0,4}}true", LEFT_OUT),
    # make and shell
    _row(
        _SHELL_CODE,
        rf"{_RUN}[^\n]{{0,80}}?\|\s{{0,4}}(?:sed\b|grep -v)[^\n]{{0,60}}?(?:not ok|FAIL|[fF]ail|ERROR|[eE]rror)"
        rf"|\bif {_RUN}[^\n;]{{0,80}};\s{{0,4}}then echo (\S{{1,40}});\s{{0,4}}else echo \1\s{{0,4}};?\s{{0,4}}fi"
        r"|^\.IGNORE\s{0,4}:",
        SUCCEEDS,
    ),
    # checks that are not tests
    _row(r"/\.pre-commit-config\.ya?ml$", r"^[ \t]{0,20}entry:\s{0,4}['\"]?(?:true|:|echo|/bin/true)\b", SUCCEEDS),
    _row(
        r"/(?:\.?mypy\.ini|setup\.cfg|pyproject\.toml)$",
        r"^\[(?:tool\.)?mypy\][ \t]*\n(?:[^\[\n][^\n]{0,200}\n){0,40}?ignore_errors\s{0,4}=\s{0,4}[tT]rue",
        SUCCEEDS,
    ),
    _row(
        r"/(?:\.?ruff\.toml|\.eslintrc[\w.]*|eslint\.config\.\w+)$",
        r"\b(?:ignore\w{0,20}|exclude)['\"]?\s{0,4}[:=]\s{0,4}\[[^\]]{0,200}?['\"](?:\*\*/)?\*['\"]",
        LEFT_OUT,
    ),
    _row(
        r"/tsconfig[\w.]*\.json$",
        r"\"exclude\"\s{0,4}:\s{0,4}\[[^\]]{0,400}?\"(?:\./)?(?:src|lib)/[^\"*]{1,80}\.tsx?\"",
        LEFT_OUT,
    ),
    # workflows
    _row(
        _WORKFLOW,
        rf"{_RUN}[^\n]{{0,80}}?(?:\|\||;)\s{{0,4}}(?:true|:|exit 0)\b|\bif:\s{{0,4}}(?:false\b|\$\{{\{{\s{{0,4}}false)"
        r"|\b(?:continueOnError|ignore_failure)['\"]?:\s{0,4}true|currentBuild\.result\s{0,4}=\s{0,4}['\"]SUCCESS"
        rf"|{_RUN}{_SAME_JOB}\ballow_failure:\s{{0,4}}true|\ballow_failure:\s{{0,4}}true{_SAME_JOB}{_RUN}",
        SUCCEEDS,
    ),
)
_SCRIPT = re.compile(r"\.(?:sh|bash)$")
_ENDS_WELL = re.compile(rf"{_RUN}[^\n]{{0,400}}\n(?:[^\n]{{0,400}}\n){{0,3}}?exit 0\s*\Z")
_STOPS = re.compile(r"(?m)^[ \t]*set -\w*e|^#!\S+ -\w*e|\bset -o errexit|\|\| exit\b")
_GOES_ON = re.compile(r"(?m)^[ \t]*set \+e")
_COMMENTED_INCLUDE = re.compile(r"(?m)^[ \t]*#+[ \t]*include\(")
_REMARK = re.compile(r"(?m)^[ \t]*(#(?!!)|//|;).*$")


def bent(path: str, content: str) -> str:
    """What the text of a file does to a test run; empty where it does nothing."""
    rows = _rows_of(path)
    is_script, is_list = _SCRIPT.search(path) is not None, path.endswith("/runtests.jl")
    if not rows and not is_script and not is_list:
        return ""
    content = content[:_MAX_SETTINGS]
    code = without_remarks(content)
    for row in rows:
        if row.content.search(code):
            return row.reason
    if is_script and _ENDS_WELL.search(code[-4_096:]) and (_GOES_ON.search(code) or not _STOPS.search(code)):
        return SUCCEEDS
    return LEFT_OUT if is_list and _COMMENTED_INCLUDE.search(content) else ""


def without_remarks(text: str) -> str:
    """The text without the lines that are a remark alone."""
    return _REMARK.sub("", text)


@lru_cache(maxsize=1024)
def _rows_of(path: str) -> tuple[Row, ...]:
    return tuple(row for row in ROWS if row.files.search(path))
