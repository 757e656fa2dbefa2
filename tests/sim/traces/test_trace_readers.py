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
    CancelledRule,
    EstimateRule,
    JobChunk,
    ProcessorRule,
    ReadOptions,
    TraceError,
    chunk_builder,
    load_with_report,
    open_trace,
    read,
)
from hanse.sim.traces.line_source import CUT_SHORT, LINE_BYTES_MAX
from hanse.sim.traces.read_report import BAD_ROWS_KEPT_MAX

SWF_HEAD = "; MaxNodes: 4\n; MaxProcs: 8\n; UnixStartTime: 1000\n; Partition: 1 north\n; Partition: 2 south\n"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8", newline="")
    return path


def swf(
    job: int, *, run: int = 10, status: int = 1, alloc: int = 2, req: int = 4, wish: int = 60, site: int = 1
) -> str:
    return f"{job} {100 + job} 5 {run} {alloc} -1 -1 {req} {wish} 2048 {status} 7 3 -1 1 {site} -1 -1"


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
    assert (chunk.jobs, report.rows, report.bad) == (2, 2, 0)


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
    assert 5_000 < chunk.jobs < 20_000
    assert chunk.duration.tolist() == [i * 7919 % 1000 * 1_000_000 for i in range(chunk.jobs)]
    assert any(note.startswith(CUT_SHORT) for note in report.notes)
    assert report.bad <= 1
    assert report.rows == report.jobs + report.bad
    if report.bad:
        assert report.first[0].line == chunk.jobs + 1


def test_a_damaged_gzip_gives_what_comes_before_the_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("".join(f"{i} 1 1 {i * 31 % 97}\n" for i in range(50_000)).encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    path = tmp_path / "a.tr.gz"
    path.write_bytes(bytes(packed))
    chunk, report = load_with_report(path)
    assert chunk.jobs > 0
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
            largest = max(largest, chunk.tasks)
            tasks += chunk.tasks
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
    assert [chunk.jobs for chunk in chunks] == [7] * 14 + [2]
    again, _ = load_with_report(path)
    again.check()
    for name in ("job", "arrival", "duration", "offset", "site", "user", "cpu"):
        assert np.array_equal(getattr(whole, name), getattr(again, name)), name
    assert [again.name(index) for index in again.site[:3]] == ["north", "south", "north"]


def test_limit_takes_the_first_entries(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tr", "".join(f"{i} 1 1 {i}\n" for i in range(50)))
    chunk, _ = load_with_report(path, limit=3)
    assert chunk.duration.tolist() == [0, 1_000_000, 2_000_000]


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


def event(time: int, job: int, task: int, kind: int, cpu: float = 0.5) -> str:
    return f"{time},,{job},{task},4,{kind},user{job},2,9,{cpu},0.25,0.0001,0\n"


def test_google_2011_puts_jobs_together(tmp_path: Path) -> None:
    text = (
        event(100, 7, 0, 0)
        + event(110, 7, 1, 0, cpu=0.75)
        + event(120, 7, 0, 1)
        + event(130, 8, 0, 0)
        + event(140, 7, 1, 1)
        + event(150, 7, 1, 2)  # evicted: that attempt does not count
        + event(155, 7, 1, 0)
        + event(160, 7, 1, 1)
        + event(170, 7, 0, 4)
        + event(180, 8, 0, 5)  # killed before it ran
        + event(190, 9, 0, 4)  # never submitted
        + event(200, 7, 1, 3)
        + event(210, 10, 0, 0)
        + event(220, 10, 0, 1)  # never ends
        + "1,2,3\n"
    )
    path = put(tmp_path, "part-00000-of-00500.csv.gz", text)
    chunk, report = load_with_report(path)
    chunk.check()
    assert open_trace(path).format == "google-2011"
    assert chunk.job.tolist() == [7]
    assert chunk.arrival.tolist() == [100]
    assert chunk.duration.tolist() == [50, 40]
    assert chunk.cpu.tolist() == [48_000]
    assert chunk.memory.tolist() == [64 << 30]
    assert chunk.name(int(chunk.user[0])) == "user7"
    assert chunk.extra["priority"].tolist() == [9]
    assert report.rows == 15
    assert [bad.line for bad in report.first] == [11, 15]
    assert sum(report.skipped.values()) == 2


def test_google_2011_forgets_an_evicted_attempt(tmp_path: Path) -> None:
    text = event(1, 1, 0, 0) + event(2, 1, 1, 0) + event(3, 1, 0, 1) + event(3, 1, 1, 1)
    text += event(5, 1, 0, 2) + event(6, 1, 1, 4) + event(9, 1, 0, 5)  # evicted, then killed while it waited
    chunk, report = load_with_report(put(tmp_path, "e.csv", text))
    assert chunk.duration.tolist() == [3]
    assert sum(report.skipped.values()) == 1


def test_google_2011_bounds_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.sim.traces.google2011.OPEN_TASKS_MAX", 3)
    text = event(1, 1, 0, 0) + event(2, 1, 1, 0) + event(3, 1, 0, 1) + event(4, 1, 0, 4)
    text += "".join(event(10 + job, job, 0, 0) for job in range(2, 5))
    text += "".join(event(20 + job, job, 0, 1) + event(30 + job, job, 0, 4) for job in range(2, 5))
    chunk, report = load_with_report(put(tmp_path, "e.csv", text))
    assert chunk.job.tolist() == [1, 2, 3, 4]
    assert sum(report.skipped.values()) == 1


def test_alibaba_2018_batch_tasks_make_dags(tmp_path: Path) -> None:
    text = (
        "J3_1_2,2,j_5,1,Terminated,200,260,100,0.5\n"
        "M1,1,j_5,1,Terminated,150,160,50,0.25\n"
        "M2,1,j_5,1,Terminated,140,190,100,\n"
        "R9_4,1,j_6,1,Terminated,90,95,100,0.1\n"
        "task_Nzg3,3,j_6,1,Terminated,95,99,100,0.1\n"
        "M1,1,j_7,1,Running,300,0,100,0.1\n"
        "M1,1,j_8,1,Terminated,300,200,100,0.1\n"
    )
    chunk, report = load_with_report(put(tmp_path, "batch_task.csv", text))
    chunk.check()
    assert chunk.parent.tolist() == [1, 1, 0, 0, 0]
    assert chunk.arrival.tolist() == [0, 0, 50_000_000, 50_000_000, 50_000_000]
    assert chunk.duration.tolist() == [5_000_000] + [4_000_000] * 3 + [60_000_000] * 2 + [
        10_000_000,
        50_000_000,
    ]
    assert chunk.cpu.tolist() == [1_000, 1_000, 1_000, 500, 1_000]
    assert chunk.needs is not None
    assert sorted(zip(chunk.needs[0].tolist(), chunk.needs[1].tolist(), strict=True)) == [(2, 3), (2, 4)]
    assert sum(report.skipped.values()) == 2  # one had not ended, one edge leads nowhere
    assert report.reasons == {"ends before it starts": 1}


def test_alibaba_2020_tasks(tmp_path: Path) -> None:
    text = (
        "ab12,worker,3,Terminated,1000.0,1060.5,600.0,29.5,50.0,T4\n"
        "ab12,ps,1,Terminated,1000.0,1060.0,200.0,10,,CPU\n"
        "cd34,tensorflow,1,Failed,900.0,910.0,,,100.0,V100\n"
        "ef56,tensorflow,1,Waiting,,,600.0,29.0,100.0,MISC\n"
    )
    reader = open_trace(put(tmp_path, "pai_task_table.csv", text))
    assert reader.format == "alibaba-pai"
    chunk = next(iter(reader))
    chunk.check()
    assert chunk.arrival.tolist() == [100_000_000, 100_000_000, 0]
    assert chunk.counts().tolist() == [3, 1, 1]
    assert chunk.gpu.tolist() == [500, 0, 1_000]
    assert chunk.cpu.tolist() == [6_000, 2_000, 0]
    assert chunk.memory.tolist() == [29_500_000_000, 10_000_000_000, 0]
    assert chunk.parent.tolist() == [0, 0, 1]
    assert [chunk.name(index) for index in chunk.extra["gpu_spec"]] == ["T4", "CPU", "V100"]
    assert sum(reader.report.skipped.values()) == 1


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
