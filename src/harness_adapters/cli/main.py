"""`harness-adapters`: parse, call, print.

Exit codes: 0 done; 1 an expected failure or a refusal of the operating system, said in one line; 2 wrong usage; 130
stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness_adapters import __version__
from harness_adapters.cli import study

RUNS = Path("runs")
_LARGEST = 2**63 - 1
"""Of any whole number given as a flag, seeds among them; the configuration narrows what goes into it further."""

_SHOWN_NAME = 80
"""Characters shown of a path or value in a refusal."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    args = _parser().parse_args(argv)
    sys.exit(guarded(lambda: args.command(args)))


def guarded(command: Callable[[], int]) -> int:
    """Run a command; an expected failure becomes one line on standard error and exit code 1.

    So does whatever the operating system refuses: a name too long, a full disk under the standard output.
    """
    from harness_adapters.errors import HarnessAdaptersError, Terminated

    if sys.stdout is None:
        print("error: the standard output is closed", file=sys.stderr)
        return 1
    try:
        code = command()
        sys.stdout.flush()
        return code
    except HarnessAdaptersError as error:
        print(f"error: {error.message}" + (f"\n  -> {error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; everything finished so far is kept", file=sys.stderr)
        return 130
    except Terminated:
        print("stopped; everything finished so far is kept", file=sys.stderr)
        return 143
    except BrokenPipeError:
        _give_up_stdout()
        return 1
    except OSError as error:
        if error.errno is None:
            raise
        _give_up_stdout()
        print(f"error: {_refusal(error)}", file=sys.stderr)
        return 1


def _refusal(error: OSError) -> str:
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    shown = name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]}…"
    return f"{shown}: {error.strerror}" if shown else str(error.strerror)


def _give_up_stdout() -> None:
    """Where the standard output takes no more, let what is still buffered go, or the interpreter's exit fails on it."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _whole(least: int, most: int = _LARGEST) -> Callable[[str], int]:
    """A parser of flags that are whole numbers within bounds, both included."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text[:_SHOWN_NAME]!r} is not a whole number") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:_SHOWN_NAME]} is not within {least} to {most}")
        return value

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness-adapters",
        description="Train one small LoRA adapter per base model and coding-agent harness, the harness unmodified.",
        epilog="example: harness-adapters demo --steps 2",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (_add_demo, _add_train, study.add_parser, _add_eval, _add_serve, _add_tasks, _add_doctor):
        add(commands)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    example: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=what,
        description=what,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    return parser


def _add_run_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, metavar="N", help="GRPO steps (0: warm start only)")
    parser.add_argument("--tasks", type=int, metavar="N", help="how many first-steps tasks to train on")
    parser.add_argument("--seed", type=_whole(0), metavar="N", help="seed of tasks, sampling and training")
    parser.add_argument(
        "--model", metavar="PATH", help="a transformers folder instead of the packaged SmolLM2-135M-Instruct"
    )
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run directory that was stopped")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any configuration key, for example trainer.learning_rate=1e-4",
    )
    parser.add_argument(
        "--runs", type=Path, default=RUNS, metavar="DIR", help="where run directories are made (default: runs)"
    )


def _overrides(args: argparse.Namespace) -> list[str]:
    named = {"trainer.steps": args.steps, "tasks.train": args.tasks, "seed": args.seed}
    flags = [f"{key}={value}" for key, value in named.items() if value is not None]
    if args.model:
        flags.append(f"model.path={Path(args.model).expanduser().absolute()}")
    return flags + list(args.set)


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "demo",
        "the whole loop on this machine: tasks, warm start, GRPO in real pi sandboxes, evaluation, report",
        "harness-adapters demo --steps 2 --seed 1",
        _demo,
    )
    _add_run_flags(parser)


def _demo(args: argparse.Namespace) -> int:
    from harness_adapters.config import load_config
    from harness_adapters.runs.demo import run_to_the_end

    _refuse_changes_on_resume(args)
    config = load_config(preset="tiny-cpu", overrides=_overrides(args))
    return run_to_the_end(config, args.runs, args.resume)


def _add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "train",
        "train and evaluate as a configuration file says (a preset, your tasks, your model)",
        "harness-adapters train my-run.toml --set trainer.steps=20",
        _train,
    )
    parser.add_argument("config", type=Path, nargs="?", metavar="CONFIG.toml", help="layered over its preset")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved configuration and stop")
    _add_run_flags(parser)


def _train(args: argparse.Namespace) -> int:
    from harness_adapters.config import load_config, to_toml
    from harness_adapters.errors import ConfigError
    from harness_adapters.runs.demo import run_to_the_end
    from harness_adapters.runs.directory import resolved_config
    from harness_adapters.runs.stack import check_choices, check_new

    _refuse_changes_on_resume(args)
    if args.config is None and args.resume is None:
        raise ConfigError("train needs a configuration file", "harness-adapters train CONFIG.toml, or --resume RUN")
    source = resolved_config(args.resume) if args.resume is not None else args.config
    config = load_config(source, overrides=_overrides(args))
    if args.dry_run:
        (check_choices if args.resume is not None else check_new)(config)
        print(to_toml(config), end="")
        return 0
    return run_to_the_end(config, args.runs, args.resume)


def _refuse_changes_on_resume(args: argparse.Namespace) -> None:
    from harness_adapters.errors import ConfigError

    if args.resume is not None and (_overrides(args) or getattr(args, "config", None)):
        raise ConfigError("a resumed run keeps its configuration", "leave the other flags out, or start a new run")


def _add_eval(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "eval",
        "the comparison table of a run, recomputed from its recorded rollouts",
        "harness-adapters eval --from runs/demo-20261130-120000",
        _eval,
    )
    parser.add_argument("--from", dest="run", type=Path, required=True, metavar="RUN", help="a run directory")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")


def _eval(args: argparse.Namespace) -> int:
    from harness_adapters.evaluation.from_run import recompute
    from harness_adapters.evaluation.tables import render, to_json

    recomputed = recompute(args.run)
    if args.format == "json":
        print(json.dumps({**to_json(recomputed.comparison), "warnings": recomputed.warnings}, indent=2))
        return 0
    for warning in recomputed.warnings:
        print(f"warning: {warning}")
    print(render(recomputed.comparison, args.format))
    return 0


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "serve",
        "serve a base model and an adapter to your own pi, with the guard in front",
        "harness-adapters serve runs/demo-20261130-120000 --port 8787",
        _serve,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, or a PEFT adapter folder")
    parser.add_argument("--model", metavar="PATH", help="the base model's transformers folder, if not the packaged one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_whole(0, 65535), default=8787)
    parser.add_argument("--base", action="store_true", help="serve the base model alone, to compare")
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE.toml",
        help="the guard's policy (docs/guard.md); its pack is user by default",
    )


def _serve(args: argparse.Namespace) -> int:
    from harness_adapters.config import read_toml
    from harness_adapters.runs.serve import serve

    policy = read_toml(args.policy) if args.policy else {}
    return serve(args.run, model=args.model or "", host=args.host, port=args.port, base_only=args.base, policy=policy)


def _add_tasks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tasks = _command(
        commands, "tasks", "make task sets", "harness-adapters tasks first-steps my-tasks --train 96", _tasks_usage
    )
    kinds = tasks.add_subparsers(title="task sets", required=True, metavar="SET")
    parser = _command(
        kinds,
        "first-steps",
        "Harbor task directories that one or two shell commands solve",
        "harness-adapters tasks first-steps my-tasks --train 96 --heldout 40 --unseen 12 --seed 0",
        _first_steps,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets train/, heldout/, unseen/; must not exist")
    parser.add_argument("--train", type=_whole(0), default=96, metavar="N")
    parser.add_argument("--heldout", type=_whole(0), default=40, metavar="N")
    parser.add_argument("--unseen", type=_whole(0), default=12, metavar="N")
    parser.add_argument("--dev", type=_whole(0), default=0, metavar="N", help="tasks to tune a recipe on, in dev/")
    parser.add_argument("--seed", type=_whole(0), default=0, metavar="N")


def _tasks_usage(args: argparse.Namespace) -> int:
    return 2


def _first_steps(args: argparse.Namespace) -> int:
    from harness_adapters.errors import ConfigError
    from harness_adapters.storage import atomic_folder
    from harness_adapters.tasks.sources.first_steps import generate

    if args.folder.exists():
        raise ConfigError(f"{args.folder} is already there", "name a folder that does not exist")
    with atomic_folder(args.folder.absolute()) as work:
        counts = {"train": args.train, "heldout": args.heldout, "unseen": args.unseen, "dev": args.dev}
        made = generate(work, seed=args.seed, **counts)
    print(f"{args.folder}: " + ", ".join(f"{len(made[split])} {split}" for split in counts))
    return 0


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "doctor",
        "check that this machine can run sandboxes, the harness and the model, and say what to do where it cannot",
        "harness-adapters doctor --prepare",
        _doctor,
    )
    parser.add_argument("--prepare", action="store_true", help="install the harness and convert the model first")


def _doctor(args: argparse.Namespace) -> int:
    from harness_adapters.runs.doctor import doctor

    return doctor(prepare=args.prepare)
