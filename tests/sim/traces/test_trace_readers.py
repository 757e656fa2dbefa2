"""The readers of text formats, on tiny files: values, bad rows with their lines, bounded memory."""

import gzip
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.traces import (
    ReadOptions,
    TraceError,
    chunk_builder,
    load_with_report,
    open_trace,
    read,
)
from hanse.sim.traces.line_source import CUT_SHORT, LINE_BYTES_MAX
from hanse.sim.traces.read_report import BAD_ROWS_KEPT_MAX
from tests.sim.traces.trace_files import SWF_HEAD, put, swf


def test_tr_gives_arrivals_durations_and_offsets(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tr", "100.5 2 1.5  1.25 1.75  \n\n# comment\n100.5 1 3 3\r\n102 3 1 0 1e-6 2.9\n")
    chunk, report = load_with_report(path)
    chunk.check()
    assert chunk.arrival.tolist() == [0, 0, 1_500_000]
    assert chunk.duration.tolist() == [1_250_000, 1_750_000, 3_000_000, 0, 1, 2_900_000]
    assert chunk.offset.tolist() == [0, 2, 3, 6]
    assert chunk.job.tolist() == chunk.parent.tolist() == [0, 1, 2]
    assert (report.rows, report.jobs, report.tasks, report.bad) == (3, 3, 6, 0)
    assert chunk.cpu.tolist() == [0, 0, 0]


def test_tr_truncates_to_whole_seconds_when_asked(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tr", "0.25 3 1 0.99 1.999999 7\n0.5 1 1 2\n")
    chunk, _ = load_with_report(path, options=ReadOptions(truncate_seconds=True))
    assert chunk.duration.tolist() == [0, 1_000_000, 7_000_000, 2_000_000]
    assert chunk.arrival.tolist() == [0, 250_000]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("5 2 1 1", "the number of tasks is not the number of durations"),
        ("5 x 1 1", "not a number"),
        ("5 1 1 nan", "not a number"),
        ("5 1 1 inf", "not a number"),
        ("5 1 1 -3", "a negative duration"),
        ("5 1 1", "fewer than four fields"),
        ("-9 1 1 1", "arrives before the trace begins"),
        ("5 1 1 1e17", "a time longer than 285 years"),
        ("\x00\xff", "fewer than four fields"),
    ],
)
def test_tr_counts_a_bad_row_with_its_line_and_goes_on(tmp_path: Path, row: str, reason: str) -> None:
    path = put(tmp_path, "a.tr", f"1 1 1 1\n\n{row}\n9 1 1 4\n")
    chunk, report = load_with_report(path)
    assert chunk.duration.tolist() == [1_000_000, 4_000_000]
    assert report.rows == 3
    assert report.reasons == {reason: 1}
    assert [(bad.line, bad.reason) for bad in report.first] == [(3, reason)]
    assert any("line 3" in line and reason in line for line in report.lines())


def test_a_last_line_without_an_end_counts(tmp_path: Path) -> None:
    chunk, report = load_with_report(put(tmp_path, "a.tr", "0 1 1 1\n1 1 1 2"))
    assert (chunk.job_count, report.rows, report.bad) == (2, 2, 0)


def test_bad_rows_are_counted_in_full_and_kept_up_to_a_bound(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tr", "1 1 1 1\n" + "rubbish\n" * 500)
    _, report = load_with_report(path)
    assert report.bad == 500
    assert report.reasons == {"fewer than four fields": 500}
    assert [bad.line for bad in report.first] == list(range(2, 2 + BAD_ROWS_KEPT_MAX))


def test_gzip_is_read_like_plain_text(tmp_path: Path) -> None:
    text = "".join(f"{i} 2 1 {i}.5 2\n" for i in range(1_000))
    plain, _ = load_with_report(put(tmp_path, "a.tr", text))
    packed, _ = load_with_report(put(tmp_path, "b.tr.gz", text))
    unnamed, _ = load_with_report(put(tmp_path, "c.gz", text))
    two = tmp_path / "two.tr.gz"
    two.write_bytes(gzip.compress(text[:777].encode()) + gzip.compress(text[777:].encode()))
    parts, report = load_with_report(two)
    for other in (packed, unnamed, parts):
        assert np.array_equal(plain.duration, other.duration)
        assert np.array_equal(plain.arrival, other.arrival)
    assert report.notes == []


def test_a_cut_gzip_gives_what_it_holds_and_says_so(tmp_path: Path) -> None:
    text = "".join(f"{i} 1 1 {i * 7919 % 1000}\n" for i in range(20_000))
    packed = gzip.compress(text.encode())
    path = tmp_path / "a.tr.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    chunk, report = load_with_report(path)
    assert 5_000 < chunk.job_count < 20_000
    assert chunk.duration.tolist() == [i * 7919 % 1000 * 1_000_000 for i in range(chunk.job_count)]
    assert any(note.startswith(CUT_SHORT) for note in report.notes)
    assert report.bad <= 1
    assert report.rows == report.jobs + report.bad
    if report.bad:
        assert report.first[0].line == chunk.job_count + 1


def test_a_damaged_gzip_gives_what_comes_before_the_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("".join(f"{i} 1 1 {i * 31 % 97}\n" for i in range(50_000)).encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    path = tmp_path / "a.tr.gz"
    path.write_bytes(bytes(packed))
    chunk, report = load_with_report(path)
    assert chunk.job_count > 0
    assert chunk.duration[:100].tolist() == [i * 31 % 97 * 1_000_000 for i in range(100)]
    assert any(note.startswith(CUT_SHORT) for note in report.notes)


def test_a_line_beyond_the_bound_is_one_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.sim.traces.line_source.LINE_BYTES_MAX", 1 << 10)
    monkeypatch.setattr("hanse.sim.traces.line_source.BLOCK_BYTES", 1 << 9)
    path = put(tmp_path, "a.tr", "1 1 1 1\n" + "2 " * 4_000 + "\n3 1 1 3\n")
    chunk, report = load_with_report(path)
    assert LINE_BYTES_MAX > 1 << 20
    assert chunk.duration.tolist() == [1_000_000, 3_000_000]
    assert [bad.line for bad in report.first] == [2]
    assert report.bad == 1


def test_memory_does_not_grow_with_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_builder, "TASKS_PER_CHUNK", 4_096)
    monkeypatch.setattr("hanse.sim.traces.line_source.BLOCK_BYTES", 1 << 14)

    def peak(jobs: int) -> tuple[int, int, int]:
        path = tmp_path / f"{jobs}.tr"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{job} 64 1 {'1.5 2.25 ' * 32}\n" for job in range(jobs))
        most, tasks, largest = 0, 0, 0
        tracemalloc.start()
        for chunk in read(path):
            largest = max(largest, chunk.task_count)
            tasks += chunk.task_count
            most = max(most, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert tasks == jobs * 64
        return most, tasks, largest

    small, large = peak(400), peak(4_000)
    assert large[2] <= 4_096 + 64
    assert large[0] < 1.25 * small[0]


def test_chunks_are_bounded_and_join_to_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a.swf", SWF_HEAD + "".join(swf(job, site=1 + job % 2) + "\n" for job in range(100)))
    whole, _ = load_with_report(path)
    monkeypatch.setattr(chunk_builder, "JOBS_PER_CHUNK", 7)
    chunks = list(read(path))
    assert [chunk.job_count for chunk in chunks] == [7] * 14 + [2]
    again, _ = load_with_report(path)
    again.check()
    for name in ("job", "arrival", "duration", "offset", "site", "user", "cpu"):
        assert np.array_equal(getattr(whole, name), getattr(again, name)), name
    assert [again.name(index) for index in again.site[:3]] == ["north", "south", "north"]


def test_limit_takes_the_first_entries(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tr", "".join(f"{i} 1 1 {i}\n" for i in range(50)))
    chunk, _ = load_with_report(path, limit=3)
    assert chunk.duration.tolist() == [0, 1_000_000, 2_000_000]


def test_an_unknown_file_gets_an_error_that_lists_the_formats(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        open_trace(put(tmp_path, "weather.csv", "zone,temperature\nDE,7\n"))
    text = str(caught.value)
    assert "zone,temperature" in text
    for name in ("swf", "openb", "philly", "csv", "parquet", "google-2011"):
        assert f"\n  {name} " in text
    with pytest.raises(TraceError, match="the file is empty"):
        open_trace(put(tmp_path, "nothing", ""))
    with pytest.raises(TraceError, match="does not exist"):
        open_trace(tmp_path / "absent.tr")
    with pytest.raises(TraceError, match="is a folder"):
        open_trace(tmp_path)


def test_a_named_format_overrides_and_is_checked(tmp_path: Path) -> None:
    path = put(tmp_path, "data.txt", "rubbish\n0 1 1 5\n")
    with pytest.raises(TraceError, match="not recognised"):
        open_trace(path)
    chunk, report = load_with_report(path, format="tr")
    assert (chunk.duration.tolist(), report.bad) == ([5_000_000], 1)
    with pytest.raises(TraceError, match="there is no trace format 'zzz'; choose one of: csv"):
        open_trace(path, format="zzz")
    for name in ("philly", "csv", "parquet", "alibaba-dag", "google-2019"):
        with pytest.raises(TraceError, match="it lacks the columns"):
            open_trace(path, format=name)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        ["tr", "swf", "google-2011", "alibaba-batch", "alibaba-pai", "openb", "philly", "muri", "gaia", "csv"]
    ),
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.lists(
                st.sampled_from(
                    ["0", "1", "-1", "7", "1e400", "nan", "9" * 30, "", "x", '"', "2017-10-09 07:01:55"]
                ),
                max_size=19,
            ).map(",".join),
            st.lists(
                st.sampled_from(["0", "1", "-1", "7", "1e300", "nan", "99999999999999999999", "2.5"]),
                max_size=19,
            ).map(" ".join),
        ),
        max_size=12,
    ),
)
def test_no_row_raises_and_none_is_lost(form: str, rows: list[str]) -> None:
    heads = {
        "openb": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time",
        "philly": "timestamp,duration,num_gpus,gpu_time,cluster",
        "muri": "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration",
        "gaia": "arrival_time,length,cpus",
        "csv": "arrival_us,duration_us,tasks,needs,extra.a:int",
    }
    lines = [row.replace("\n", " ").replace("\r", " ") for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_text(
            "\n".join([heads.get(form, ""), *lines]), encoding="utf-8", errors="replace", newline=""
        )
        reader = open_trace(path, format=form)
        for chunk in reader:
            chunk.check()
    report = reader.report
    assert report.bad == sum(report.reasons.values())
    if form != "google-2011":  # there a job is made of many rows
        edges = report.skipped.get(chunk_builder.EDGE_LOST, 0)
        assert report.rows == report.jobs + report.bad + sum(report.skipped.values()) - edges
