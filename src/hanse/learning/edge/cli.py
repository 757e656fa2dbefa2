"""Commands of edge learning: ``train edge``, ``eval edge``, ``report edge``."""

import json
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from hanse.learning.edge.evaluation import network_evaluation
from hanse.learning.edge.evaluation import policy_evaluation as evaluation

SETTINGS = ("syn3", "hetero6", "single3", "single6", "order3", "testbed3")


@click.command("edge")
@click.option("--setting", type=click.Choice(SETTINGS[:5]), default="syn3", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--iterations", default=120, show_default=True)
@click.option("--stop-after", default=0, help="Stop after this many iterations.  [default: all]")
@click.option("--cpu-minutes", default=15.0, show_default=True, help="Stop after this much CPU time.")
@click.option("--method", type=click.Choice(["crn", "mappo"]), default="crn", show_default=True)
@click.option(
    "--course", type=click.Choice(["randomised", "wide", "fixed"]), default="randomised", show_default=True
)
@click.option("--scratch", is_flag=True, help="Skip the imitation of the rule.")
@click.option(
    "--lean",
    type=click.Choice(["none", "late", "cpus", "sizes", "full"]),
    default="sizes",
    show_default=True,
    help="Bias towards the rule: late = for sizes, once trained; cpus, sizes = from the start; full = in "
    "everything, so that the untrained network equals the rule.",
)
@click.option("--told", is_flag=True, help="Show the network the rule's own pick.")
@click.option(
    "--encoder", type=click.Choice(["attention", "mean", "none"]), default="none", show_default=True
)
@click.option("--no-pointer", is_flag=True, help="Ablation: take the oldest task that fits.")
@click.option("--vanilla", is_flag=True, help="Ablation: one flat perceptron, no encoder.")
@click.option(
    "--checkpoint", type=click.Path(dir_okay=False, path_type=Path), help="Resumed from if the file exists."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("edge.npz"), show_default=True
)
def train_edge(checkpoint: Path | None, out: Path, **options: Any) -> None:
    """Train the edge network and write it to a file that needs no torch."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - for this command

    from hanse.learning.edge.training import export, net, train  # noqa: PLC0415 - torch is an extra: only training needs it

    if checkpoint is not None and checkpoint.exists():
        trainer = train.Trainer.load(checkpoint)
        click.echo(f"resumed at iteration {trainer.iteration} of {trainer.config.end_iteration}", err=True)
    else:
        shape = net.NetConfig(
            encoder="none" if options["vanilla"] else options["encoder"],
            pointer=not options["no_pointer"],
            flat=options["vanilla"],
            told=options["told"],
            lean={
                "none": net.NO_LEAN,
                "late": net.SIZE_LEAN,
                "cpus": net.CPU_LEAN,
                "sizes": net.SIZE_LEAN,
                "full": net.FULL_LEAN,
            }[options["lean"]],
        )
        config = train.TrainConfig(
            setting=options["setting"],
            seed=options["seed"],
            method=options["method"],
            course=options["course"],
            warm_start=not options["scratch"],
            iterations=options["iterations"],
            stop_after=options["stop_after"],
            cpu_seconds_max=60.0 * options["cpu_minutes"],
            lean_late=options["lean"] == "late",
            net=shape,
        )
        trainer = train.Trainer(config)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line = bar.add_task("warm start", total=trainer.config.end_iteration, completed=trainer.iteration)

        def report(at: train.TrainingProgress) -> None:
            text = f"{at.completion:.3f} steps, {at.against_rule:.4f} of the rule, best {at.best:.4f}"
            bar.update(line, completed=at.iteration, description=text)

        trained = train.train(trainer, report, checkpoint)
    measured = {
        "cpu_seconds": round(trainer.cpu_seconds, 1),
        "iterations": trainer.iteration,
        "sub_steps": trainer.sub_steps,
        "validation": round(trainer.best, 4),
        "kept": trainer.best_iteration,
        "last": round(trainer.against_rule, 4),
    }
    export.export(trained, trainer.config, measured, out)
    click.echo(f"wrote {out} ({out.stat().st_size / 1024:.0f} KiB): {json.dumps(measured)}")


@click.command("edge")
@click.option("--seeds", default=20, show_default=True, help="Streams per setting, equal for all policies.")
@click.option("--first-seed", default=5_000_000, show_default=True)
@click.option("--setting", "names", type=click.Choice(SETTINGS), multiple=True, default=("syn3", "hetero6"))
@click.option("--policy", "policies", multiple=True, help="Default: all but the slow ones.")
@click.option(
    "--network", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A trained network."
)
@click.option("--load", default=1.0, show_default=True, help="Factor on the arrival rate.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def eval_edge(
    seeds: int,
    first_seed: int,
    names: tuple[str, ...],
    policies: tuple[str, ...],
    network: Path | None,
    load: float,
    as_json: bool,
) -> None:
    """Compare policies on the same streams."""
    wanted = policies or evaluation.DEFAULT_POLICIES
    rows: list[evaluation.EvaluationRow] = []
    for name in names:
        answer = evaluation.evaluate(name, wanted, seeds, first_seed, load, network)
        if isinstance(answer, str):
            raise click.ClickException(answer)
        rows.extend(answer)
    if as_json:
        click.echo(json.dumps([row.as_dict() for row in rows], indent=2))
        return
    table = Table("setting", "policy", "mean", "± 95 %", "median", "p95", "conflicts", "ms per sub-step")
    for row in rows:
        table.add_row(
            row.setting,
            row.policy,
            f"{row.mean:.3f}",
            f"{row.half_width:.3f}",
            f"{row.median:.1f}",
            f"{row.p95:.1f}",
            f"{row.conflicts:.3f}",
            f"{row.ms_per_sub_step:.3f}",
        )
    Console().print(table)


@click.command("edge")
@click.option("--seeds", default=20, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=Path("docs/results/edge.md"))
@click.option(
    "--trained",
    type=click.Path(file_okay=False, path_type=Path),
    default=network_evaluation.TRAINED_FOLDER,
    show_default=True,
    help="Folder of trained files: seed-*.npz and ablation-*.npz.",
)
@click.option("--section", "wanted", multiple=True, help="Write only this section again; repeatable.")
def report_edge(seeds: int, out: Path, trained: Path, wanted: tuple[str, ...]) -> None:
    """Measure everything and write the results page."""
    from hanse.learning.edge.evaluation import results_page  # noqa: PLC0415 - only this command needs it

    for name in wanted:
        if name not in results_page.SECTIONS:
            raise click.ClickException(f"no section {name!r}; there are {', '.join(results_page.SECTIONS)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    old = out.read_text() if wanted and out.exists() else ""
    out.write_text(results_page.page(seeds, trained, lambda line: click.echo(line, err=True), wanted, old))
    click.echo(f"wrote {out}")


COMMANDS: Final[dict[str, click.Command]] = {"train": train_edge, "eval": eval_edge, "report": report_edge}
"""Commands of this policy, by the group of ``hanse`` that they belong to."""


def main() -> None:
    """Run these commands alone: ``python -m hanse.learning.edge.cli``."""
    root = click.Group("hanse-edge", help="Edge learning.")
    for name, command in COMMANDS.items():
        root.add_command(click.Group(name, commands={"edge": command}))
    root()


if __name__ == "__main__":
    main()
