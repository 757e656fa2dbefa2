"""How fast the kernels are on this machine, each beside its NumPy twin in the same run.

``python bench/kernels.py --json FILE`` writes what it prints. Rates are per second of CPU time of this
process (``time.process_time``), the best of several repeats, because the machine may have other work to do.
The answers of both backends are compared before anything is timed.
"""

import platform
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from figures import options_of, tell
from numpy.typing import NDArray

from hanse.policy.hashing import hash_numbers, pick_start
from hanse.policy.kernels import (
    BACKEND,
    BEST_FIT,
    CHEAPEST,
    FIRST,
    NATIVE_LOAD_ERROR,
    SPREAD,
    c_kernels,
    numpy_kernels,
)
from hanse.policy.node_columns import NodeColumns, full_mask, mask_words

NODES = (1_000, 10_000, 50_000)
MODES = {"first": FIRST, "best_fit": BEST_FIT, "spread": SPREAD, "cheapest": CHEAPEST}
ROWS = 32
"""Constraint rows, each of density 0.5, as the available nodes are."""
WANTED_MAX = 4
BATCH = 20_000
BATCH_TWIN = 500
CALLS = {1: 200, 100: 20}
"""Calls of a series, by tasks a call: few enough that even 1,000 nodes keep room."""
REPEATS = 5
SEED = 20_240_607
ASK = (1_000, 2 << 30, 0)
"""One core, 2 GiB, no GPU."""


def cpu_rate(work: Callable[[], int], seconds: float) -> float:
    """Things done per second of CPU time by ``work``, which says how many it did: the best of REPEATS.

    Before each timed call, ``work.prepare`` is called untimed if there is one.
    """
    prepare: Callable[[], None] = getattr(work, "prepare", lambda: None)
    best = 0.0
    for _ in range(REPEATS):
        done, spent = 0, 0.0
        while spent < seconds:
            prepare()
            begin = time.process_time()
            done += work()
            spent += time.process_time() - begin
        best = max(best, done / spent)
    return best


def beside(work: Callable[[ModuleType], Callable[[], int]], seconds: float) -> dict[str, float]:
    """The rate of both backends and native over twin; of the twin alone if there is no native one."""
    rates = {"twin": cpu_rate(work(numpy_kernels), seconds)}
    if not NATIVE_LOAD_ERROR:
        rates["native"] = cpu_rate(work(c_kernels), seconds)
        rates["ratio"] = rates["native"] / rates["twin"]
    return {name: float(f"{rate:.4g}") for name, rate in rates.items()}


def random_words(rng: np.random.Generator, *shape: int) -> NDArray[np.uint64]:
    """Masks of density 0.5; what is set beyond the last node is ignored by the kernels."""
    return rng.integers(0, 1 << 64, shape, dtype=np.uint64)


def bench_match(nodes: int, constraints: int | None, seconds: float) -> dict[str, float]:
    """Matches per CPU-second in batches, with so many constraints a request (None: 0 to 4, mixed)."""
    rng = np.random.default_rng(SEED)
    rows, available = random_words(rng, ROWS, mask_words(nodes)), random_words(rng, mask_words(nodes))
    wanted = rng.integers(0, ROWS, (BATCH, WANTED_MAX), dtype=np.int32)
    kept = (
        rng.integers(0, WANTED_MAX, BATCH, endpoint=True)
        if constraints is None
        else np.full(BATCH, constraints)
    )
    wanted[np.arange(WANTED_MAX)[None, :] >= kept[:, None]] = -1
    starts = rng.integers(0, nodes, BATCH)

    def work(backend: ModuleType) -> Callable[[], int]:
        size = BATCH if backend is c_kernels else BATCH_TWIN

        def batch() -> int:
            return len(backend.match(rows, available, wanted[:size], starts[:size], nodes, False))

        return batch

    few = (rows, available, wanted[:BATCH_TWIN], starts[:BATCH_TWIN], nodes, False)
    assert NATIVE_LOAD_ERROR or np.array_equal(c_kernels.match(*few), numpy_kernels.match(*few)), (
        "the backends differ"
    )
    return beside(work, seconds)


def busy_room(nodes: int) -> NodeColumns:
    """Nodes of 64 cores, 256 GiB and 8 GPUs, each with some share of everything left."""
    rng = np.random.default_rng(SEED)
    room = NodeColumns([(64_000, 256 << 30, 8)] * nodes)
    room.free[:] = (room.capacity * rng.random(room.free.shape)).astype(np.int64)
    return room


class Placing:
    """A series of calls of ``pick`` (by mode) or ``settle`` on a busy cluster, ``count`` tasks a call.

    Each series begins with the same cluster, restored untimed, and leaves most of it free. ``settle`` is
    proposed scattered nodes, some of which are full.
    """

    def __init__(self, backend: ModuleType, nodes: int, count: int, kind: str) -> None:
        self.backend, self.count, self.kind = backend, count, kind
        self.room, self.mask = busy_room(nodes), full_mask(nodes)
        self.before = self.room.free.copy()
        self.cost = np.random.default_rng(SEED).integers(0, 1_000, nodes)
        self.starts = [pick_start(SEED, at, nodes) for at in range(CALLS[count])]
        self.proposals = [
            [pick_start(SEED + at + 1, task, nodes) for task in range(count)] for at in range(CALLS[count])
        ]

    def prepare(self) -> None:
        """Restore the cluster."""
        self.room.free[:] = self.before

    def answers(self) -> list[list[int]]:
        """What the series answers."""
        if self.kind == "settle":
            return [
                self.backend.settle(self.room, ASK, self.mask, proposed, start)
                for proposed, start in zip(self.proposals, self.starts, strict=True)
            ]
        mode = MODES[self.kind]
        return [
            self.backend.pick(self.room, ASK, self.mask, start, self.count, mode, 0, self.cost)
            for start in self.starts
        ]

    def __call__(self) -> int:
        """Run the series; tells how many tasks it placed."""
        placed = self.answers()
        return len(placed) * self.count


def bench_placing(nodes: int, count: int, kind: str, seconds: float) -> dict[str, float]:
    """Tasks per CPU-second that ``pick`` (by mode) or ``settle`` places, ``count`` a call."""
    series = [Placing(backend, nodes, count, kind) for backend in (numpy_kernels, c_kernels)]
    theirs = series[0].answers()
    assert all(len(answer) == count and min(answer) >= 0 for answer in theirs), "the cluster is too small"
    assert NATIVE_LOAD_ERROR or series[1].answers() == theirs, "the backends differ"
    return beside(lambda backend: series[backend is c_kernels], seconds)


def bench_call(seconds: float) -> dict[str, float]:
    """Microseconds of CPU a call takes that places one task, and a mix."""
    room, mask, small = NodeColumns([(1 << 40, 1 << 50, 8)] * 1_000), full_mask(1_000), (1, 1, 0)
    backend = numpy_kernels if NATIVE_LOAD_ERROR else c_kernels
    calls: dict[str, Callable[[], object]] = {
        "pick": lambda: backend.pick(room, small, mask, 7, 1, FIRST, 0, None),
        "settle": lambda: backend.settle(room, small, mask, [9], 7),
        "mix": lambda: hash_numbers(SEED, 12),
        "pick_start": lambda: pick_start(SEED, 12, 50_000),
    }

    def hundred(call: Callable[[], object]) -> Callable[[], int]:
        def run_hundred() -> int:
            for _ in range(100):
                call()
            return 100

        return run_hundred

    return {name: float(f"{1e6 / cpu_rate(hundred(call), seconds):.3g}") for name, call in calls.items()}


def run(seconds: float = 0.2) -> dict[str, Any]:
    """Every figure, by kernel, number of nodes and kind; ``seconds`` of CPU time a repeat."""
    result: dict[str, Any] = {
        "backend": BACKEND,
        "why_not_native": NATIVE_LOAD_ERROR,
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "cpu": platform.machine()},
        "unit": "per CPU-second; call_microseconds: microseconds of CPU time",
        "match": {
            str(nodes): {
                ("0-4" if wanted is None else str(wanted)): bench_match(nodes, wanted, seconds)
                for wanted in (None, 0, 1, 2, 3, 4)
            }
            for nodes in NODES
        },
        "call_microseconds": bench_call(seconds),
    }
    for kind in (*MODES, "settle"):
        result[kind] = {
            str(nodes): {str(count): bench_placing(nodes, count, kind, seconds) for count in (1, 100)}
            for nodes in NODES
        }
    return result


def main() -> None:
    """Measure, print, and write to ``--json``."""
    parser = options_of("Rates of the kernels beside their NumPy twins.")
    parser.add_argument("--seconds", type=float, default=0.2, help="CPU time a repeat")
    options = parser.parse_args()
    tell(run(options.seconds), options.json)


if __name__ == "__main__":
    main()
