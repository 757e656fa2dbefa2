"""Google's sub-trace at many sizes of league: ``python bench/sizes.py --json FILE [--seeds N]``.

How far the mean delay is from that of ``central``, and messages and rejects per task, by the compiled twin. A
rule that was chosen by a few sizes may fail at others; these are the ones that are looked at.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from hanse.sim.baselines.task_level.central import central
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.metrics import delays_of
from hanse.sim.replay.run_records import ReplaySettings
from hanse.sim.replay.trace_workload import read_workload
from hanse.sim.replay.validate import traces_folder

SIZES = (
    (7_000, 4, 10), (8_000, 10, 20), (9_000, 10, 12), (10_000, 4, 10), (10_000, 4, 25), (11_000, 5, 15),
    (12_000, 6, 18), (13_000, 3, 40), (14_000, 5, 10), (15_000, 5, 10), (15_000, 4, 25), (15_000, 8, 12),
    (16_000, 5, 10), (16_500, 7, 9), (17_000, 3, 7), (18_000, 5, 10), (18_000, 10, 10), (19_000, 5, 10),
    (20_000, 5, 10), (22_000, 5, 10), (25_000, 5, 10),
)  # fmt: skip
"""Nodes, brokers, clusters."""
UNSEEN = ((11_500, 7, 13), (15_500, 4, 8), (17_200, 6, 15), (18_700, 9, 20), (9_500, 3, 16))
"""The same, looked at only after all rules were chosen."""


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    folder = traces_folder()
    if folder is None:
        parser.error("no traces: name their folder in HANSE_TRACES")
    google = read_workload(folder / "tr" / "GOOG_subtrace.tr.gz")[0]
    rows: list[dict[str, Any]] = []
    for nodes, brokers, clusters in SIZES + UNSEEN:
        for seed in range(options.seeds):
            settings = ReplaySettings(nodes=nodes, brokers=brokers, clusters=clusters, seed=seed)
            ran = run_hanse(google, settings)
            ours, oracle = (delays_of(google, each)[0].mean() for each in (ran, central(google, settings)))
            rows.append({
                "nodes": nodes, "brokers": brokers, "clusters": clusters, "seed": seed,
                "unseen": (nodes, brokers, clusters) in UNSEEN, "ratio": round(float(ours / oracle), 3),
                "messages_per_task": round(ran.messages / google.task_count, 3),
                "rejects_per_task": round(ran.rejects / google.task_count, 4),
            })  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    for figure in ("ratio", "messages_per_task", "rejects_per_task"):
        print(f"at most {max(row[figure] for row in rows)} {figure}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
