"""`safeagents scrub`: secrets and personal details out of recorded sessions.

Exit codes: 0 done (with --check: nothing to replace); 1 something that cannot be read or written, or with --check
something that would be replaced; 2 wrong usage, or a file of a folder was left out because it is no text; 130 it was
interrupted (143: ended), and nothing was kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness_adapters.scrub import Report

_SCRUB = """\
Reads sessions (pi, claude-code, codex, opencode exports, hermes, chat messages, any other JSON or JSON lines) and
writes them with secrets and personal details replaced by numbered stand-ins such as <hf_token:1>; equal values get
equal stand-ins over all files. Found are your own live secrets (environment, .netrc, token files), more than 200 kinds
of keys and tokens, passwords where something says so, names, addresses and home folders. Images and base64 are dropped.
The report names kinds and places, never values. No tool finds everything: read what you publish.
"""
_EXAMPLES = """\
exit codes: 0 done; 1 something cannot be read or written, or --check found something; 2 wrong usage, or a binary file
of a folder was left out; 130 interrupted, and nothing was kept
examples:
  safeagents scrub --find                                    your own sessions in the harnesses' usual folders
  safeagents scrub ~/.pi/agent/sessions -o clean/            all of pi's sessions into a new folder
  safeagents scrub session.jsonl -o clean.jsonl --report report.json
  safeagents scrub clean/ --check                            exit code 1 if anything is left to replace
"""


def add_parser(commands: Any) -> None:
    """Add the command to a parser's sub-commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "scrub",
        help="take secrets and personal details out of sessions",
        description=_SCRUB,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="session files, or folders of them")
    parser.add_argument("-o", "--out", metavar="OUT", help="folder to write to; a file for a single input")
    parser.add_argument("--find", action="store_true", help="list your own sessions; nothing is read or written")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would be replaced")
    parser.add_argument("--keep-images", action="store_true", help="keep images and base64")
    parser.add_argument("--report", type=Path, metavar="FILE", help="the report as JSON, with every place")
    parser.add_argument("--force", action="store_true", help="write over existing files, never over an input")
    parser.set_defaults(command=lambda args: _scrub(parser, args))


def _scrub(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    if args.find:
        if args.paths or args.out or args.check:
            parser.error("--find lists sessions and takes no PATH, -o or --check")
        return _find()
    if not args.paths:
        parser.error("name a PATH, or list your sessions with --find")
    if args.check and args.out:
        parser.error("--check writes nothing; leave out -o")
    if not args.check and not args.out:
        parser.error("name the output with -o, or only look with --check")
    return _run(args)


def _find() -> int:
    from harness_adapters.sessions import find_sessions

    found = find_sessions(Path.home())
    for session in found:
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.modified))
        note = "  (a database: export its sessions first)" if session.database else ""
        print(f"{date}  {session.size:>11,}  {session.harness:<11}  {session.path}{note}")
    if not found:
        print("no sessions in the usual folders of pi, claude-code, codex, opencode and hermes", file=sys.stderr)
    return 0


def _run(args: argparse.Namespace) -> int:
    from harness_adapters.errors import Terminated
    from harness_adapters.scrub import Scrubber, check_files, identity_of, scrub_files
    from harness_adapters.scrub.inputs import BINARY
    from harness_adapters.storage import write_atomic

    if args.report:
        _refuse_report(args)
    try:
        scrubber = Scrubber(identity_of(os.environ, Path.home()), keep_images=args.keep_images)
        if args.check:
            report = check_files(args.paths, scrubber, _progress)
        else:
            # Path drops the slash at the end by which a person says that it shall be a folder
            out = Path(args.out)
            folder = args.out.endswith(os.sep)
            report = scrub_files(
                args.paths,
                out,
                scrubber,
                force=args.force,
                folder=folder,
                report=args.report,
                progress=_progress,
            )
    except (KeyboardInterrupt, Terminated) as stopped:
        kept = "nothing was written" if args.check else f"nothing was kept, {args.out} is as it was"
        print(f"interrupted: {kept}", file=sys.stderr)
        return 143 if isinstance(stopped, Terminated) else 130
    if args.report:
        write_atomic(args.report, json.dumps(report.as_json(), indent=1).encode() + b"\n")
    _print(report, args)
    if args.check and report.kinds:
        return 1
    return 2 if any(why == BINARY for _, why in report.left_out) else 0


def _refuse_report(args: argparse.Namespace) -> None:
    """Before any work: a report that would write over something."""
    from harness_adapters.errors import ConfigError
    from harness_adapters.scrub.run import identity_on_disk, refuse_target

    here = identity_on_disk(args.report)
    if any(here == identity_on_disk(path) for path in _input_files(args.paths)):
        raise ConfigError(f"{args.report} is one of the inputs", "name another file with --report")
    if args.out and (here == identity_on_disk(Path(args.out)) or args.report.resolve() == Path(args.out).resolve()):
        raise ConfigError(f"{args.report} is the output", "name another file with --report")
    refuse_target(args.report, force=args.force, option="--report")


def _input_files(paths: list[Path]) -> Iterator[Path]:
    """The named files, and all files in named folders: a report may not replace any of them."""
    for path in paths:
        yield path
        yield from (inside for inside in path.rglob("*") if inside.is_file()) if path.is_dir() else ()


def _progress(done: int, files: int) -> None:
    if sys.stderr.isatty() and files > 1:
        print(f"\r{done}/{files} files", end="\n" if done == files else "", file=sys.stderr, flush=True)


def _print(report: Report, args: argparse.Namespace) -> None:
    from harness_adapters.scrub.inputs import BINARY

    size = sum(file.size for file in report.files)
    count = sum(report.kinds.values())
    print(f"{len(report.files)} files, {size:,} bytes: {count} places {'to replace' if args.check else 'replaced'}")
    if report.kinds:
        print("\n".join(report.table()))
    for file in report.files:
        if file.text_lines:
            lines = len(file.text_lines)
            print(
                f"{file.name}: {lines} lines are no JSON and were scrubbed as text (first: line {file.text_lines[0]})"
            )
    for name, why in report.left_out:
        if why == BINARY:
            print(f"left out: {name} is {why}; export a session from a database first")
    if report.left_out:
        name, why = report.left_out[0]
        print(f"{len(report.left_out)} files of the folders were left out (first: {name}, {why})")
