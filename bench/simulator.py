"""How many events the simulator takes through the real machines in one second of CPU time, all checkers on.

``python bench/simulator.py --json FILE`` writes what it prints. An event is one thing that reaches a
machine: a message, a tick, a start, an end, a request. The twin is the same seeds with the kernels in
NumPy; both must give the same digest. Rates are per second of CPU time of this process, the best of
several repeats.
"""

import platform
from typing import Any

from figures import options_of, tell
from rounds import twin_kernels

from hanse.policy.kernels import BACKEND, NATIVE_LOAD_ERROR
from hanse.sim.chaos import combined_digest, run_seed
from hanse.sim.shipped_league import shipped_factories

SEEDS = range(30)
REPEATS = 3
BAR = 100_000
"""Events per CPU-second that the simulator must reach."""


def measure(seeds: range) -> tuple[dict[str, Any], str]:
    """Events per CPU-second over these seeds, and the digest of them all."""
    factories = shipped_factories()
    best: dict[str, Any] = {}
    digest = ""
    for _ in range(REPEATS):
        results = [run_seed(seed, factories) for seed in seeds]
        events, cpu = sum(it.events for it in results), sum(it.cpu for it in results)
        if not best or events / cpu > best["events_per_cpu_second"]:
            best = {
                "events_per_cpu_second": round(events / cpu),
                "events": events,
                "happened_per_cpu_second": round(sum(it.happened for it in results) / cpu),
                "tasks": sum(it.tasks for it in results),
                "simulated_seconds_per_cpu_second": round(sum(it.simulated for it in results) / 1e6 / cpu, 1),
                "violations": sum(it.finding is not None for it in results),
            }
        digest = combined_digest(results)
    return best, digest


def run(seeds: range = SEEDS) -> dict[str, Any]:
    """The simulator with the kernels at hand, and with those in NumPy."""
    real, digest = measure(seeds)
    with twin_kernels():
        other, same = measure(seeds)
    assert digest == same, "the kernels differ"
    return {
        "backend": BACKEND,
        "why_not_native": NATIVE_LOAD_ERROR,
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
        "seeds": [seeds.start, seeds.stop - 1],
        "bar": BAR,
        "digest": digest,
        "real": real,
        "twin": other,
        "ratio": round(real["events_per_cpu_second"] / other["events_per_cpu_second"], 2),
    }


def main() -> None:
    """Measure, print, and write to ``--json``."""
    parser = options_of("Simulated events per CPU-second, all checkers on.")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds, from 0 on")
    options = parser.parse_args()
    tell(run(range(options.seeds)), options.json)


if __name__ == "__main__":
    main()
