"""Task starts per second of CPU time in a world, by policy and load: ``python bench/worlds.py
--json FILE``.

The world is the preset ``eight`` (1,310 nodes). Its work comes from public traces (``../shared/traces`` or
``HANSE_TRACES``); without them a generated one stands in, and the figures say so. Reading the trace, making
the work and measuring the outcome are not counted. ``decision_us_p99``: processor time of the policy for a
job's arrival. Two runs of each; the better counts, because other programs only ever make a run slower."""

import platform
from pathlib import Path
from typing import Any, Final

from figures import options_of, tell

from hanse.sim.replay.validate import traces_folder
from hanse.sim.traces import ReadOptions, load_from_reader, open_trace
from hanse.sim.traces.chunk import JobChunk, concatenate, sort_by_arrival
from hanse.sim.traces.generate import GeneratorSettings, generate
from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.policy_records import WorldPolicy, WorldRunSettings
from hanse.sim.worlds.policy_registry import world_policies
from hanse.sim.worlds.presets import make_preset
from hanse.sim.worlds.work import make_work
from hanse.sim.worlds.world_columns import columns_of
from hanse.sim.worlds.world_runs import run_in_world

TRACES: Final = (
    "tr/GOOG_subtrace.tr.gz", "alibaba/alibaba_2017_tasks.parquet", "alibaba/gaia_pai_100k.csv.gz",
    "philly/philly_2017_sep_oct.csv.gz",
)  # fmt: skip
LOADS: Final = (0.5, 0.7, 0.9)
BAR: Final = 100_000
"""Task starts per CPU-second that every simple policy must reach."""
RUNS: Final = 2


def run(jobs: int | None = None) -> dict[str, Any]:
    """All figures; ``jobs``: use only so many of each trace."""
    world = make_preset("eight", 0)
    columns, traces = columns_of(world), _traces(jobs)
    figures: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
        "engine": "python" if loader.LOAD_PROBLEM else "compiled",
        "nodes": len(columns.node_cpu),
        "traces": [name for name, _ in traces],
        "bar": BAR,
    }
    for load in LOADS:
        work = make_work(world, traces, load, 0, "test")
        by_policy: dict[str, Any] = {"tasks": work.task_count}
        for policy in _measured():
            results = [run_in_world(policy, columns, work, WorldRunSettings(), load) for _ in range(RUNS)]
            best = max(results, key=lambda result: result.starts_per_cpu_second)
            by_policy[policy.name] = {
                "starts_per_cpu_second": round(best.starts_per_cpu_second),
                "decision_us_mean": round(best.decision_us_mean or 0.0, 2),
                "decision_us_p99": round(best.decision_us_p99 or 0.0, 2),
                "completion_mean": round(best.completion_mean or 0.0, 2),
            }
        figures[f"load {load}"] = by_policy
    return figures


def _measured() -> list[WorldPolicy]:
    """Return the policies that are run, without variants."""
    return [
        policy for policy in world_policies().values() if not policy.is_variant and not policy.is_computed
    ]


def _traces(jobs: int | None) -> list[tuple[str, JobChunk]]:
    """The public traces, or a generated one."""
    folder = traces_folder()
    if folder is None:
        wish = GeneratorSettings(family="google-like", jobs=jobs or 20_000, load=0.7, nodes=1_310)
        return [("generated, google-like", concatenate(list(generate(wish))))]
    return [(name, _read(folder / name, jobs)) for name in TRACES]


def _read(path: Path, jobs: int | None) -> JobChunk:
    return sort_by_arrival(load_from_reader(open_trace(path, options=ReadOptions()), jobs))


def main() -> None:
    """Measure, print, and write to ``--json``."""
    parser = options_of("Task starts that a world takes per CPU-second.")
    parser.add_argument("--jobs", type=int, help="only the first jobs of each trace")
    options = parser.parse_args()
    tell(run(options.jobs), options.json)


if __name__ == "__main__":
    main()
