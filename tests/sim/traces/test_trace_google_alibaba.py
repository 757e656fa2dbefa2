"""The readers of the traces of Google and Alibaba, on tiny files: rows of tasks that make jobs."""

from pathlib import Path

import pytest

from hanse.sim.traces import (
    load_with_report,
    open_trace,
)
from tests.sim.traces.trace_files import put


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
