"""`harness-adapters study`: several seeds of one recipe, one test set, one report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_WHAT = "train one recipe with several seeds, judge all on one test set, and report them as a whole"

_HOW = """\
FILE.toml is a configuration as `train` reads it, with `seeds = [1, 2, 3]` in place of `seed`. Every run of the study is
judged on the same tasks (`tasks.evaluation_seed` draws them). `--dry-run` prints the file with every key and the digest
of these tasks as `frozen.test_set`: commit that before the run, and no study of it starts on other tasks.
"""

_EXAMPLE = """\
example: harness-adapters study my-study.toml --seeds 1,2,3
         harness-adapters study --from runs/study-20261130-120000 --export sessions.jsonl
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of the program."""
    parser = commands.add_parser(
        "study",
        help=_WHAT,
        description=f"{_WHAT}\n\n{_HOW}",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", type=Path, nargs="?", metavar="FILE.toml", help="layered over its preset")
    parser.add_argument("--seeds", type=_seeds, default=[], metavar="1,2,3", help="instead of those of the file")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="where the study directory is made (default: runs)")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved study, test set's digest, and stop")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with a study that was stopped")
    parser.add_argument(
        "--from", dest="study", type=Path, metavar="PATH", help="report a study directory or an exported file again"
    )
    parser.add_argument("--format", choices=("text", "markdown", "json"), help="of that report (default: text)")
    parser.add_argument("--export", type=Path, metavar="FILE.jsonl", help="write that study's sessions to a small file")
    parser.set_defaults(command=_study)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not whole numbers between commas") from None


def _study(args: argparse.Namespace) -> int:
    from harness_adapters.runs.study import resume_study, start_study
    from harness_adapters.runs.study_config import load_study, resolve

    _refuse_mixtures(args)
    if args.study is not None:
        return _report(args)
    if args.resume is not None:
        return resume_study(args.resume)
    study = load_study(args.config, args.seeds)
    if args.dry_run:
        print(resolve(study).to_toml(), end="")
        return 0
    return start_study(study, args.runs or Path("runs"))


def _report(args: argparse.Namespace) -> int:
    from harness_adapters.evaluation.export import write_export
    from harness_adapters.evaluation.from_study import read_study
    from harness_adapters.evaluation.study import compare_study
    from harness_adapters.evaluation.study_tables import render_study

    study = read_study(args.study)
    if args.export is not None:
        sessions = write_export(args.export, study)
        print(f"{sessions} sessions in {args.export}", file=sys.stderr)
    print(render_study(compare_study(study), args.format or "text"), end="")
    return 0


def _refuse_mixtures(args: argparse.Namespace) -> None:
    """Raise ConfigError for flags of which one would do nothing beside another."""
    from harness_adapters.errors import ConfigError

    ways = [name for name in ("config", "resume", "study") if getattr(args, name) is not None]
    if len(ways) != 1:
        raise ConfigError(
            "a study is made from a FILE.toml, gone on with by --resume, or reported by --from",
            "give one of the three",
        )
    belongs = {"seeds": "config", "runs": "config", "dry_run": "config", "format": "study", "export": "study"}
    where = {"config": "a FILE.toml", "study": "--from"}
    for flag, way in belongs.items():
        if getattr(args, flag) and way != ways[0]:
            raise ConfigError(f"--{flag.replace('_', '-')} goes with {where[way]}", "leave it out")
