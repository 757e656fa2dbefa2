"""The same seed gives the same run: in every process, under any PYTHONHASHSEED, and as it was recorded.

``HANSE_REWRITE=1 pytest tests/sim/test_determinism.py`` records what comes out now. The digest covers every
event of every process, so it changes with any change of behaviour; a change that was meant to change nothing
must not change it.
"""

import os
import subprocess
import sys
from pathlib import Path

from hanse.sim.chaos import combined_digest, run_seed
from hanse.sim.shipped_league import shipped_factories

GOLDEN = Path(__file__).with_name("golden_digest.txt")
FIXED_SEED = 7
SEEDS = range(8)
HASH_SEEDS = ("0", "1", "random")

DIGESTS = f"""
from hanse.sim.chaos import run_seed
from hanse.sim.shipped_league import shipped_factories
for seed in range({SEEDS.start}, {SEEDS.stop}):
    print(seed, run_seed(seed, shipped_factories()).digest)
"""


def digests_under(hash_seed: str) -> str:
    """What a fresh process gives."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_the_hash_seed_changes_nothing() -> None:
    first, *others = [digests_under(hash_seed) for hash_seed in HASH_SEEDS]
    assert len(first.split()) == 2 * len(SEEDS)
    assert others == [first, first]


def test_a_run_leaves_nothing_behind_that_changes_the_next() -> None:
    one = run_seed(FIXED_SEED, shipped_factories())
    run_seed(FIXED_SEED + 1, shipped_factories())
    again = run_seed(FIXED_SEED, shipped_factories())
    assert (again.digest, again.events, again.marks) == (one.digest, one.events, one.marks)


def test_different_seeds_give_different_runs() -> None:
    digests = {run_seed(seed, shipped_factories()).digest for seed in range(4)}
    assert len(digests) == 4


def test_the_digests_are_as_recorded() -> None:
    results = [run_seed(seed, shipped_factories()) for seed in SEEDS]
    fixed = next(result for result in results if result.seed == FIXED_SEED)
    text = (
        f"seed {FIXED_SEED}: {fixed.digest}\n"
        f"seeds {SEEDS.start} to {SEEDS.stop - 1}: {combined_digest(results)}\n"
    )
    if os.environ.get("HANSE_REWRITE") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text
