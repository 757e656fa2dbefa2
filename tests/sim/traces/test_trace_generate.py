"""Generated traces: seeded, at the load that was asked for, as heavy-tailed as their families say."""

import hashlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from hanse.sim.traces import JobChunk, TraceError, concatenate
from hanse.sim.traces.generate import FAMILIES, FAMILY_NAMES, JOBS_PER_BLOCK, GeneratorSettings, generate


def made(**wish: Any) -> JobChunk:
    chunk = concatenate(list(generate(GeneratorSettings(**wish))))
    chunk.check()
    return chunk


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_load_is_met(family: str) -> None:
    chunk = made(family=family, jobs=3_000, load=0.65, nodes=700, seed=4)
    assert chunk.job_count == 3_000
    assert chunk.job.tolist() == list(range(3_000))
    span = int(chunk.arrival[-1] - chunk.arrival[0])
    assert chunk.arrival[0] == 0
    assert float(chunk.duration.sum()) / span / 700 == pytest.approx(0.65, rel=1e-6)
    assert bool(np.all(np.diff(chunk.arrival) >= 0))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_arrivals_are_poisson(family: str) -> None:
    gaps = np.diff(made(family=family, jobs=4_000, load=0.01, nodes=1, seed=9).arrival).astype(float)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.06)
    assert float((gaps > gaps.mean()).mean()) == pytest.approx(np.exp(-1), abs=0.03)


@pytest.mark.parametrize(
    ("family", "tasks", "work"),
    # mean tasks and mean work (slot seconds) of a job, measured on the traces the tables come from
    [("google-like", 31.26, 43_993), ("yahoo-like", 42.23, 28_618), ("facebook-like", 79.96, 17_561)],
)
def test_families_are_like_their_sources(family: str, tasks: float, work: float) -> None:
    chunk = made(family=family, jobs=40_000, seed=1)
    counts = chunk.counts()
    sums = np.add.reduceat(chunk.duration, chunk.offset[:-1]) / 1e6
    assert float(counts.mean()) == pytest.approx(tasks, rel=0.1)
    assert float(sums.mean()) == pytest.approx(work, rel=0.2)
    table = FAMILIES[family].classes
    if len(table) == 1:
        for share in (0.25, 0.5, 0.9, 0.99):
            wanted = dict(zip(table[0].at, table[0].tasks, strict=True))[share]
            assert float(np.quantile(counts, share)) == pytest.approx(wanted, rel=0.12, abs=1)


def test_poisson_has_the_mean_and_size_it_is_told() -> None:
    chunk = made(jobs=2_000, tasks_per_job=7, mean_seconds=3.0)
    assert set(chunk.counts().tolist()) == {7}
    assert float(chunk.duration.mean()) / 1e6 == pytest.approx(3.0, rel=0.05)
    assert float(chunk.duration.std() / chunk.duration.mean()) == pytest.approx(1.0, abs=0.06)


def test_a_seed_is_a_trace() -> None:
    one, again, other = (made(family="yahoo-like", jobs=600, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(one.duration, again.duration)
    assert np.array_equal(one.arrival, again.arrival)
    assert not np.array_equal(one.counts(), other.counts())
    blocks = one.counts()[:JOBS_PER_BLOCK], one.counts()[JOBS_PER_BLOCK : 2 * JOBS_PER_BLOCK]
    assert not np.array_equal(*blocks)


def test_the_same_bytes_under_other_hash_seeds() -> None:
    command = [
        sys.executable,
        "-m",
        "hanse.cli.commands.trace",
        "generate",
        "--family",
        "google-like",
        "--jobs",
        "300",
    ]
    digests = [
        hashlib.sha256(
            subprocess.run(
                command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
            ).stdout
        ).hexdigest()
        for seed in ("0", "1")
    ]
    assert digests[0] == digests[1]


def test_nothing_is_held_but_a_block() -> None:
    stream = generate(GeneratorSettings(jobs=5_000, tasks_per_job=3))
    assert [next(stream).job_count for _ in range(3)] == [JOBS_PER_BLOCK] * 3
    assert sum(chunk.job_count for chunk in stream) == 5_000 - 3 * JOBS_PER_BLOCK


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"family": "x"}, "choose one of: poisson"),
        ({"jobs": 1}, "at least two jobs"),
        ({"load": 0.0}, "above 0"),
        ({"load": float("nan")}, "above 0"),
        ({"nodes": 0}, "at least one node"),
        ({"mean_seconds": -1.0}, "mean duration"),
    ],
)
def test_a_wrong_wish_is_refused(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        generate(GeneratorSettings(**wish))
