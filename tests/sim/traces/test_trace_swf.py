"""The reader of the Standard Workload Format, on tiny files."""

from pathlib import Path

import pytest

from hanse.sim.traces import (
    CancelledRule,
    EstimateRule,
    JobChunk,
    ProcessorRule,
    ReadOptions,
    load_with_report,
    open_trace,
)
from tests.sim.traces.trace_files import SWF_HEAD, put, swf


def swf_chunk(folder: Path, rows: list[str], rules: ReadOptions | None = None) -> JobChunk:
    path = put(folder, "a.swf", SWF_HEAD + "".join(row + "\n" for row in rows))
    chunk, _ = load_with_report(path, options=rules or ReadOptions())
    chunk.check()
    return chunk


def test_swf_fields_and_header(tmp_path: Path) -> None:
    path = put(tmp_path, "a.swf", SWF_HEAD + swf(3, site=2) + "\n" + swf(9)[: -len(" -1")] + "\n")
    reader = open_trace(path)
    assert (reader.format, reader.nodes_hint, reader.unix_start) == ("swf", 8, 1000)
    chunk = next(iter(reader))
    assert chunk.job.tolist() == [3, 9]
    assert chunk.arrival.tolist() == [0, 6_000_000]
    assert reader.origin == 103_000_000
    assert chunk.duration.tolist() == [10_000_000] * 2
    assert chunk.cpu.tolist() == [4_000] * 2
    assert chunk.memory.tolist() == [2048 * 1024 * 4] * 2
    assert chunk.estimate.tolist() == [60_000_000] * 2
    assert [chunk.name(index) for index in chunk.site] == ["south", "north"]
    assert (chunk.name(int(chunk.user[0])), chunk.name(int(chunk.group[0]))) == ("7", "3")
    assert chunk.extra["wait"].tolist() == [5_000_000] * 2
    assert chunk.extra["allocated"].tolist() == [2, 2]
    assert chunk.extra["requested"].tolist() == [4, 4]


def test_swf_rules(tmp_path: Path) -> None:
    rows = [swf(1), swf(2, alloc=-1), swf(3, req=-1), swf(4, run=90)]
    assert swf_chunk(tmp_path, rows).cpu.tolist() == [4_000, 4_000, 2_000, 4_000]
    allocated = swf_chunk(tmp_path, rows, ReadOptions(processors=ProcessorRule.ALLOCATED))
    assert allocated.cpu.tolist() == [2_000, 4_000, 2_000, 2_000]
    real = swf_chunk(tmp_path, rows, ReadOptions(estimates=EstimateRule.AT_LEAST_REAL))
    assert real.estimate.tolist() == [60_000_000, 60_000_000, 60_000_000, 90_000_000]
    killed = swf_chunk(tmp_path, rows, ReadOptions(kill_at_estimate=True))
    assert killed.duration.tolist() == [10_000_000] * 3 + [60_000_000]
    assert swf_chunk(tmp_path, [swf(1, wish=-1)], ReadOptions(kill_at_estimate=True)).duration.tolist() == [
        10_000_000
    ]


@pytest.mark.parametrize(
    ("rules", "kept", "skipped"),
    [
        (ReadOptions(), [1, 2, 6], 2),
        (ReadOptions(cancelled=CancelledRule.KEEP), [1, 2, 3, 6], 1),
        (ReadOptions(cancelled=CancelledRule.SKIP), [1, 6], 3),
        (ReadOptions(skip_zero_runtime=True), [1, 2], 3),
    ],
)
def test_swf_statuses(tmp_path: Path, rules: ReadOptions, kept: list[int], skipped: int) -> None:
    rows = [
        swf(1),
        swf(2, status=5),
        swf(3, status=5, run=-1),
        swf(4, status=3),
        swf(5, run=-1),
        swf(6, run=0, status=0),
        swf(7, alloc=-1, req=0),
        "1 2 3",
    ]
    path = put(tmp_path, "a.swf", SWF_HEAD + "".join(row + "\n" for row in rows))
    chunk, report = load_with_report(path, options=rules)
    assert chunk.job.tolist() == kept
    assert sum(report.skipped.values()) == skipped
    assert report.reasons == {
        "no run time": 1,
        "no processors, neither allocated nor requested": 1,
        "fewer than 17 fields": 1,
    }
    assert report.rows == report.jobs + report.bad + skipped
