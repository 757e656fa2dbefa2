"""Our own form: what is written is read back; sampling, joining and describing keep what they must."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.traces import (
    JobChunk,
    TraceError,
    chunk_builder,
    concatenate,
    load_with_report,
    open_trace,
    sort_by_arrival,
    take,
)
from hanse.sim.traces.chunk import empty_chunk
from hanse.sim.traces.chunk_builder import ChunkBuilder, TraceRow
from hanse.sim.traces.describe import Distribution, TraceDescription
from hanse.sim.traces.read_report import ReadReport
from hanse.sim.traces.sample import Sampling, draw_fractions, sample
from hanse.sim.traces.writers import TraceWriter

TIMES = st.integers(0, 10**13)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=6)


@st.composite
def chunks(draw: st.DrawFn) -> JobChunk:
    made = ChunkBuilder(ReadReport(), {"status": int, "share": float, "spec": int}, ("spec",), origin=0)
    arrival = 0
    for dag in range(draw(st.integers(0, 5))):
        size = draw(st.integers(1, 4))
        arrival += draw(st.integers(0, 10**9))
        for node in range(size):
            durations = draw(st.lists(TIMES, min_size=1, max_size=4))
            count = draw(st.integers(1, 5)) if len(durations) == 1 else len(durations)
            names = [made.names.number(draw(TEXTS).strip()) for _ in range(4)]
            amounts = draw(st.lists(st.integers(0, 1 << 40), min_size=4, max_size=4))
            share = draw(st.one_of(st.just(float("nan")), st.floats(allow_nan=False, allow_infinity=False)))
            row = TraceRow(
                job=dag * 10 + node,
                arrival=arrival,
                durations=durations,
                count=count,
                parent=dag,
                needs=tuple(
                    dag * 10 + other for other in range(size) if other != node and draw(st.booleans())
                ),
                extra=(draw(st.integers(-1, 99)), share, names[3]),
                user=names[0],
                group=names[1],
                site=names[2],
                **dict(zip(("cpu", "memory", "gpu", "estimate"), amounts, strict=True)),
            )
            assert made.add(1, row)
    return made.flush() if made.entries else empty_chunk()


def assert_same(one: JobChunk, two: JobChunk) -> None:
    for name in ("job", "arrival", "offset", "duration", "cpu", "memory", "gpu", "estimate", "parent"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    for name in ("user", "group", "site"):
        left, right = ([c.name(index) for index in getattr(c, name)] for c in (one, two))
        assert left == right, name
    assert edges(one) == edges(two)
    if one.job_count:
        assert list(one.extra) == list(two.extra)
        assert one.name_keys == two.name_keys
    for key, column in one.extra.items():
        if key in one.name_keys:
            assert [one.name(i) for i in column] == [two.name(i) for i in two.extra[key]]
        else:
            assert np.array_equal(column, two.extra[key], equal_nan=column.dtype.kind == "f"), key


def edges(chunk: JobChunk) -> list[tuple[int, int]]:
    return [] if chunk.needs is None else sorted(zip(*(part.tolist() for part in chunk.needs), strict=True))


def write(path: Path, *parts: JobChunk, **options: Any) -> Path:
    with TraceWriter(path, **options) as writer:
        for part in parts:
            writer.write(part)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
@settings(max_examples=60, deadline=None)
@given(chunk=chunks())
def test_what_is_written_is_read_back(name: str, chunk: JobChunk) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow (the extra for Parquet) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / name, chunk, marks={"nodes": "12", "durations": "no", "unix_start": "77"})
        back, report = load_with_report(path)
        back.check()
        assert_same(chunk, back)
        assert (report.bad, report.skipped, report.notes) == (0, {}, [])
        reader = open_trace(path)
        assert (reader.nodes_hint, reader.has_durations, reader.unix_start) == (12, False, 77)
        first = path.read_bytes()
        assert (
            write(path, back, marks={"nodes": "12", "durations": "no", "unix_start": "77"}).read_bytes()
            == first
        )


@settings(max_examples=60, deadline=None)
@given(chunk=chunks())
def test_tr_keeps_arrivals_and_durations(chunk: JobChunk) -> None:
    with tempfile.TemporaryDirectory() as folder:
        back, report = load_with_report(write(Path(folder) / "t.tr", chunk), format="tr")
        if chunk.job_count:
            assert np.array_equal(back.arrival, chunk.arrival - chunk.arrival[0])
        assert np.array_equal(back.duration, chunk.duration)
        assert np.array_equal(back.offset, chunk.offset)
        assert report.bad == 0


def test_a_hand_written_csv_needs_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "arrival_us,duration_us,tasks\n5,10,\n7,10 20,2\n9,30,3\n11,1 2,3\n13,,\n14.5,1,\n", encoding="utf-8"
    )
    chunk, report = load_with_report(path)
    chunk.check()
    assert chunk.arrival.tolist() == [5, 7, 9]
    assert chunk.duration.tolist() == [10, 10, 20, 30, 30, 30]
    assert [bad.line for bad in report.first] == [5, 6, 7]


def test_a_dag_is_never_cut_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        f"{dag},{dag * 10 + node},{dag},5,{dag * 10 if node else ''}\n"
        for dag in range(6)
        for node in range(5)
    ]
    path = tmp_path / "d.csv"
    path.write_text("parent,job,arrival_us,duration_us,needs\n" + "".join(rows), encoding="utf-8")
    monkeypatch.setattr(chunk_builder, "JOBS_PER_CHUNK", 7)
    reader = open_trace(path)
    parts = list(reader)
    assert [part.job_count for part in parts] == [10, 10, 10]
    assert [len(edges(part)) for part in parts] == [8, 8, 8]
    assert reader.report.skipped == {}
    whole = concatenate(parts)
    whole.check()
    assert edges(whole) == sorted((5 * dag + node, 5 * dag) for dag in range(6) for node in range(1, 5))


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("before", encoding="utf-8")

    def broken() -> None:
        with TraceWriter(path) as writer:
            writer.write(empty_chunk())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
    assert path.read_text(encoding="utf-8") == "before"


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"end it in \.csv"):
        TraceWriter(tmp_path / "t.doc")
    with pytest.raises(TraceError, match="choose one of: csv, parquet, tr"):
        TraceWriter(tmp_path / "t.csv", "swf")
    with (
        pytest.raises(TraceError, match="does not exist: make it first"),
        TraceWriter(tmp_path / "no" / "t.csv"),
    ):
        pass


@settings(max_examples=60, deadline=None)
@given(chunk=chunks(), cut=st.integers(0, 20))
def test_parts_join_to_the_whole(chunk: JobChunk, cut: int) -> None:
    edge = min(cut, chunk.job_count)
    parts = [take(chunk, np.arange(edge)), take(chunk, np.arange(edge, chunk.job_count))]
    whole = concatenate(parts)
    whole.check()
    kept = [(late, early) for late, early in edges(chunk) if (late < edge) == (early < edge)]
    assert edges(whole) == kept
    assert np.array_equal(whole.duration, chunk.duration)
    assert [whole.name(index) for index in whole.user] == [chunk.name(index) for index in chunk.user]


def test_sorting_moves_tasks_and_edges_along() -> None:
    made = ChunkBuilder(ReadReport(), origin=0)
    for job, arrival in enumerate((30, 10, 20, 10)):
        durations = list(range(job * 10, job * 10 + job + 1))
        needs = (0,) if job == 1 else ()
        made.add(
            1, TraceRow(job=job, arrival=arrival, durations=durations, count=job + 1, parent=0, needs=needs)
        )
    chunk = sort_by_arrival(made.flush())
    chunk.check()
    assert chunk.job.tolist() == [1, 3, 2, 0]
    assert chunk.duration.tolist() == [10, 11, 30, 31, 32, 33, 20, 21, 22, 0]
    assert edges(chunk) == [(0, 3)]


def plain(jobs: int) -> JobChunk:
    made = ChunkBuilder(ReadReport(), origin=0)
    for job in range(jobs):
        made.add(1, TraceRow(job=job, arrival=job * 1_000_000, durations=(job,)))
    return made.flush()


def test_sampling() -> None:
    parts = [take(plain(1_000), np.arange(start, start + 100)) for start in range(0, 1_000, 100)]
    every = concatenate(list(sample(parts, Sampling(every=7))))
    assert every.job.tolist() == list(range(0, 1_000, 7))
    window = concatenate(list(sample(parts, Sampling(begin=150_000_000, end=250_000_000))))
    assert window.job.tolist() == list(range(150, 250))
    assert window.arrival[0] == 0
    thin = concatenate(list(sample(parts, Sampling(fraction=0.3, seed=5))))
    assert 240 < thin.job_count < 360
    other = concatenate(list(sample(parts, Sampling(fraction=0.3, seed=6))))
    assert thin.job.tolist() != other.job.tolist()
    again = concatenate(list(sample([plain(1_000)], Sampling(fraction=0.3, seed=5))))
    assert again.job.tolist() == thin.job.tolist()


def test_the_lottery_is_even_and_fixed() -> None:
    draws = draw_fractions(np.arange(20_000), 1)
    assert abs(float(draws.mean()) - 0.5) < 0.01
    assert np.histogram(draws, 10, (0, 1))[0].min() > 1_850
    # by hand, in whole numbers of 64 bits
    state, mask = 3 + 1 * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15, (1 << 64) - 1
    for _ in range(2):
        state &= mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state = (state ^ (state >> 31)) + 0x9E3779B97F4A7C15
    assert draw_fractions(np.array([3]), 1)[0] == ((state & mask) >> 11) / (1 << 53)


def test_sampling_keeps_dags_whole() -> None:
    made = ChunkBuilder(ReadReport(), origin=0)
    for dag in range(200):
        for node in range(3):
            needs = (dag * 3,) if node else ()
            made.add(1, TraceRow(job=dag * 3 + node, arrival=dag, durations=(1,), parent=dag, needs=needs))
    whole = made.flush()
    for wish in (Sampling(every=5), Sampling(fraction=0.25, seed=2)):
        thin = concatenate(list(sample([whole], wish)))
        thin.check()
        assert 0 < thin.job_count < 600
        assert all(count == 3 for count in np.unique(thin.parent, return_counts=True)[1])
        assert len(edges(thin)) == thin.job_count // 3 * 2


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1 << 53), min_size=1, max_size=200), st.floats(0.1, 99.9))
def test_percentiles_are_near_the_exact_ones(values: list[int], share: float) -> None:
    found = Distribution()
    for start in range(0, len(values), 7):
        found.add(np.array(values[start : start + 7], np.int64))
    exact = sorted(values)[max(1, int(np.ceil(share / 100 * len(values)))) - 1]
    assert abs(found.percentile(share) - exact) <= 0.0051 * exact
    assert (found.least, found.most, found.count) == (min(values), max(values), len(values))
    assert found.mean == pytest.approx(sum(values) / len(values))


def test_a_description_sees_the_gap_between_chunks() -> None:
    found = TraceDescription()
    whole = plain(10)
    found.add(take(whole, np.arange(4)))
    found.add(take(whole, np.arange(6, 10)))
    gaps = found.as_dict()["interarrival_seconds"]
    assert (gaps["max"], gaps["min"], found.gap.count) == (3.0, 1.0, 7)


def test_a_description_counts_work_and_demand() -> None:
    made = ChunkBuilder(ReadReport(), origin=0)
    made.add(
        1, TraceRow(job=1, arrival=0, durations=(4_000_000,), count=3, cpu=2_000, user=made.names.number("a"))
    )
    made.add(2, TraceRow(job=2, arrival=6_000_000, durations=(1_000_000, 7_000_000), count=2, gpu=500))
    found = TraceDescription()
    found.add(take(made.flush(), np.arange(2)))
    found.add(empty_chunk())
    facts = found.as_dict()
    assert (facts["jobs"], facts["tasks"], facts["span_seconds"], facts["work_seconds"]) == (2, 5, 6.0, 20.0)
    assert facts["mean_demand_slots"] == pytest.approx(20 / 6)
    assert facts["mean_demand_cpus"] == pytest.approx(24 / 6)
    assert facts["mean_demand_gpus"] == pytest.approx(4 / 6)
    assert facts["users"] == 1
    assert facts["tasks_per_job"]["p50"] == 2
    assert TraceDescription().as_dict()["mean_demand_slots"] is None
