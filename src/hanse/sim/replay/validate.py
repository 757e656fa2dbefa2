"""Comparison with published figures: ``python -m hanse.sim.replay.validate --out FILE`` writes
docs/results/validation.md."""

import os
import sys
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from hanse.sim.replay.confidence_intervals import mean_with_interval
from hanse.sim.replay.execution import run_once
from hanse.sim.replay.metrics import RunResult
from hanse.sim.replay.published import PublishedCase, cases
from hanse.sim.replay.registry import policies
from hanse.sim.replay.report import format_figure
from hanse.sim.replay.run_records import SECOND, ReplayWorkload
from hanse.sim.replay.trace_workload import read_workload

NAMES: Final = {
    "delay_mean": "mean", "delay_p50": "p50", "delay_p90": "p90", "delay_p99": "p99", "delay_p999": "p99.9",
    "short_delay_p99": "short p99", "long_delay_p99": "long p99", "messages_per_task": "messages/task",
    "rejects_per_task": "rejects/task",
}  # fmt: skip
DETERMINISTIC: Final = ("central", "ideal", "independent", "shared")
"""Deterministic policies: one seed is enough."""

_HEAD: Final = """# Validation of the replay

Made by `make validate`; do not edit. Published or logged figures beside ours: job delay (completion -
arrival - longest task) in seconds, one task per node, 0.5 ms one way unless a row says otherwise.
*authors' logs* are the result files of the schedulers' own authors; *independent simulator* is a second
implementation of the same schedulers on the same network model. Ours is the mean over the seeds 0, 1, ...
with its 95 % confidence interval (Student's t); a policy that draws nothing has one seed and no interval. A
goal is a deviation that must not be exceeded; where none is stated the row is for information. Tails of few
jobs are as uncertain as they look: p99.9 of 2,910 jobs is the third worst job.
"""
_REMARKS: Final = """
## Reading the deviations

- *One central broker*: the log is of the authors' own simulator with one broker and one cluster, which lets
  its broker claim nodes again that it has just claimed (391,915 denials with a single broker) and leaves it
  to the accident of a heap which of several events at one moment is first. `megha-logged` does the same and
  comes out at the log's figures. With events in the order in which they were caused it has a p99 of 506 s (in
  all of three seeds): that of `central` (a correct central broker on the same network) and, but for one
  second, of the independent simulator. So these two are not to be fitted to 417.
- *central* has three messages between two tasks of a node, as has the independent simulator: with them its
  figures come out to the last digit where chance has no part (Yahoo at 4,000 nodes, fewest-remaining: p90
  17.37, p99.9 1851; without any message, as `ideal`, 15.58 and 1883).
- *Eagle*: a probe that is turned away costs two messages before its next try here; the figures beside it
  charge one, so that a delay of 0.0020 s there is 0.0025 s here. Eagle on fewer than 500 nodes is left out:
  with 2 % of the nodes for short jobs, all its fall-back probes pile up on a handful of nodes.
- *Chosen by fit*: what the papers leave open was settled by trying alternatives against figures of this very
  table, so the rows named here are no independent evidence for the choice. Sparrow draws nodes with
  replacement (without: Google mean 4413 and p50 3709, Yahoo at 5,000 nodes mean 827; one seed each). Pigeon
  deals tasks to groups in turn (in contiguous parts: Google at 15,000 nodes mean 61.7 instead of 38.6, Yahoo
  12.3 instead of 12.9). `megha-logged` deals jobs to brokers in turn (by their numbers of tasks: mean 76.0,
  p50 3.04, p90 77.1). A question of Hawk's thieves counts as one message (with its answer: 23.0 per task).
  All other rules were written down from the descriptions and not changed after comparison.
- *Durations as given* against a log of durations in whole seconds is not like for like: for information only.
- *Messages of Eagle and of Megha repaired* differ because what is counted differs: we count every probe,
  rejection, request, answer, claim, denial, launch and completion, and a batch once.
- *EXP_90*: the source does not say how many brokers and clusters it had. Nine settings were tried, and 3 x 7
  kept among those near its figure: with 2 brokers the mean is 0.05 s, with 5 to 7 brokers 0.7 to 1.8 s. So
  these rows show that the figure can be had, not that it is predicted.
- Where the published value is below 0.01 the deviation is a difference, not per cent.
- Not compared, because the traces are not to be had: full Yahoo, Cloudera and Facebook, modified Google,
  Yahoo sub-trace 2.
"""


def traces_folder() -> Path | None:
    """Return the folder of the traces: ``HANSE_TRACES``, else ``../shared/traces`` beside the project; None
    if absent."""
    named = os.environ.get("HANSE_TRACES")
    folder = Path(named) if named else Path(__file__).resolve().parents[4] / ".." / "shared" / "traces"
    return folder if (folder / "tr").is_dir() else None


def run_case(case: PublishedCase, workload: ReplayWorkload) -> list[RunResult]:
    """Return our results for a case, one per seed."""
    seeds = 1 if case.policy in DETERMINISTIC else case.seeds
    policy = policies()[case.policy]
    return [
        run_once(policy, workload, msgspec.structs.replace(case.settings, seed=seed)).result
        for seed in range(seeds)
    ]


def table_rows(case: PublishedCase, results: list[RunResult]) -> list[str]:
    """Return the lines of the table for a case."""
    order = results[0].order
    lines = []
    for field, published in case.figures.items():
        our_value, interval = mean_with_interval([float(getattr(result, field)) for result in results])
        goal = case.goals.get(field)
        verdict = ""
        if goal is not None:
            verdict = f"{goal:g} %: " + (
                "met" if abs(our_value - published) <= goal / 100 * published else "**missed**"
            )
        spread = f" ± {format_figure(interval)}" if interval > 1e-9 * abs(our_value) else ""
        lines.append(
            f"| {case.policy} ({order}) | {NAMES[field]} | {format_figure(published)} | "
            f"{format_figure(our_value)}{spread} |"
            f" {_deviation(our_value, published)} | {verdict} | {len(results)} | {case.source} |"
        )
    return lines


def _deviation(our_value: float, published: float) -> str:
    if published < 0.01:
        difference = our_value - published
        return "0" if abs(difference) < 5e-5 else f"{difference:+.4g}"
    return f"{100 * (our_value - published) / published:+.1f} %"


@click.command()
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The Markdown to write."
)
@click.option("--only", default="", help="Only cases whose group or policy contains this.")
def main(out: Path, only: str) -> None:
    """Run every case and write the table."""
    folder = traces_folder()
    if folder is None:
        raise click.ClickException(
            "no traces: set HANSE_TRACES to their folder, or put them in ../shared/traces"
        )
    lines = [_HEAD]
    group = ""
    workloads: dict[tuple[str, bool], ReplayWorkload] = {}
    began = time.process_time()
    for case in cases():
        if only not in case.group and only not in case.policy:
            continue
        key = case.trace, case.whole_seconds
        if key not in workloads:
            workloads[key] = read_workload(folder / "tr" / case.trace, whole_seconds=case.whole_seconds)[0]
        if case.group != group:
            group = case.group
            lines += _heading(case, workloads[key])
        lines += table_rows(case, run_case(case, workloads[key]))
        sys.stderr.write(f"{case.group}: {case.policy}\n")
    lines.append(_REMARKS)
    out.write_text("\n".join(lines), encoding="utf-8")
    sys.stderr.write(f"{time.process_time() - began:.0f} s of processor time\n")


def _heading(case: PublishedCase, workload: ReplayWorkload) -> list[str]:
    settings = case.settings
    facts = (
        f"Load {workload.load(settings.nodes):.3f}",
        f"{workload.job_count} jobs, {workload.task_count} tasks",
        f"short below {settings.short_cutoff_us / SECOND:g} s",
        f"{settings.short_percent:g} % of the nodes for short jobs",
        f"Pigeon in groups of {settings.pigeon_group}",
        f"delay {settings.delay_us / 1000:g} ms",
        f"heartbeat {settings.heartbeat_us / SECOND:g} s",
    )
    return [
        f"\n## {case.group}\n",
        "; ".join(facts) + ".\n",
        "| policy (order) | figure | published or logged | ours | deviation | goal | seeds | source |",
        "|---|---|---|---|---|---|---|---|",
    ]


if __name__ == "__main__":
    main()
