"""The readers of CSV tables, of Parquet sets and of lists of machines, on tiny files."""

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse.registry.extras import install_command
from hanse.sim.traces import (
    NodeTable,
    ReadOptions,
    TimeUnit,
    TraceError,
    load_with_report,
    open_trace,
    read_nodes,
)

PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
BASE: dict[str, Any] = {
    "duration_s": 2.5,
    "n_tasks": 1,
    "cpu": None,
    "mem_gb": None,
    "gpu": None,
    "user": None,
    "group": None,
    "site": None,
    "constraint": None,
    "qos": None,
    "req_time_s": None,
    "orig_wait_s": None,
    "status": None,
}


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def put_parquet(folder: Path, rows: list[dict[str, Any]]) -> Path:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow (the extra for Parquet) is not installed")
    parquet = importlib.import_module("pyarrow.parquet")
    path = folder / "t.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    return path


def test_openb_pods(tmp_path: Path) -> None:
    text = PODS + (
        "openb-pod-0007,6000,12288,1,460,V100M16|V100M32,LS,Running,500,900,520\n"
        "openb-pod-0003,32000,49152,8,1000,,BE,Running,100,200,130\n"
        "openb-pod-0009,8000,30517,0,0,,BE,Pending,300,700,\n"
        "openb-pod-0010,8000,30517,0,0,,BE,Running,300,100,\n"
        "openb-pod-0011,8000,x,0,0,,BE,Running,300,400,\n"
        "openb-pod-0012,8000\n"
    )
    chunk, report = load_with_report(put(tmp_path, "pods.csv", text))
    chunk.check()
    assert chunk.job.tolist() == [3, 9, 7]
    assert chunk.arrival.tolist() == [0, 200_000_000, 400_000_000]
    assert chunk.duration.tolist() == [70_000_000, 400_000_000, 380_000_000]
    assert chunk.gpu.tolist() == [8_000, 0, 460]
    assert chunk.cpu.tolist() == [32_000, 8_000, 6_000]
    assert chunk.memory.tolist() == [49152 << 20, 30517 << 20, 12288 << 20]
    assert chunk.extra["wait"].tolist() == [30_000_000, -1, 20_000_000]
    assert [chunk.name(index) for index in chunk.extra["gpu_spec"]] == ["", "", "V100M16|V100M32"]
    assert [chunk.name(index) for index in chunk.extra["status"]] == ["Running", "Pending", "Running"]
    assert [bad.line for bad in report.first] == [5, 6, 7]
    assert report.disordered == 1


def test_openb_pods_without_times(tmp_path: Path) -> None:
    reader = open_trace(
        put(tmp_path, "p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na-1,2000,1,2,1000\n")
    )
    assert not reader.has_durations
    chunk = next(iter(reader))
    assert (chunk.job.tolist(), chunk.gpu.tolist(), chunk.duration.tolist()) == ([1], [2_000], [0])


def test_philly_is_sorted_from_its_earliest_arrival(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-08 07:01:55,10.5,4,42.0,6214e9\n"
        "yesterday,1,1,1,a\n"
        '2017-10-09 07:01:56,"7",1,1,"11cb48"\n'
        '2017-10-09 07:01:56,"7,1,1,a\n'
    )
    reader = open_trace(put(tmp_path, "p.csv", text))
    chunk, report = load_with_report(put(tmp_path, "p.csv", text))
    assert chunk.arrival.tolist() == [0, 86_400_000_000, 86_401_000_000]
    assert chunk.gpu.tolist() == [4_000, 1_000, 1_000]
    assert chunk.duration.tolist() == [10_500_000, 66_000_000, 7_000_000]
    assert [chunk.name(index) for index in chunk.site] == ["6214e9", "11cb48", "11cb48"]
    assert report.reasons == {"not a date and time": 1, "quotes that do not match": 1}
    list(reader)
    assert reader.origin is not None
    assert (reader.unix_start or 0) + reader.origin // 1_000_000 == 1507446115


def test_muri_times_are_milliseconds(tmp_path: Path) -> None:
    text = (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority\n"
        "4,8,1000,50,dqn,128,2500,0,490,446,8,0.5,1\n"
    )
    chunk, _ = load_with_report(put(tmp_path, "m.csv", text))
    chunk.check()
    assert (chunk.job.tolist(), chunk.gpu.tolist(), chunk.duration.tolist()) == ([4], [8_000], [2_500_000])
    assert chunk.extra["resource_time_2"].tolist() == [0.5]
    assert chunk.name(int(chunk.extra["model"][0])) == "dqn"


def test_gaia_finds_its_unit_and_says_so(tmp_path: Path) -> None:
    head = "arrival_time,length,cpus\n"
    hours, said = load_with_report(put(tmp_path, "h.csv", head + "0.0,0.5,1\n1.5,2.0,3\n"))
    assert hours.arrival.tolist() == [0, 5_400_000_000]
    assert hours.duration.tolist() == [1_800_000_000, 7_200_000_000]
    assert hours.cpu.tolist() == [1_000, 3_000]
    assert "hours" in said.notes[0]
    path = put(tmp_path, "s.csv", head + "0.0,6302.0,1\n68.0,1000.0,1\n")
    seconds, said = load_with_report(path)
    assert seconds.duration.tolist() == [6_302_000_000, 1_000_000_000]
    assert "seconds" in said.notes[0]
    forced, said = load_with_report(path, options=ReadOptions(time_unit=TimeUnit.HOURS))
    assert forced.arrival.tolist() == [0, 68 * 3_600_000_000]
    assert said.notes == []


def test_alibaba_dag_parquet(tmp_path: Path) -> None:
    def row(dag: str, task: str, deps: str, count: int = 1, duration: float | None = 2.5) -> dict[str, Any]:
        more = {"job_id": dag, "submit_s": 5, "task_no": task, "deps": deps, "mem_norm": 0.3, "task": "t"}
        return {**BASE, **more, "n_tasks": count, "duration_s": duration, "cpu": 0.5}

    rows = [
        row("j_41", "3", "1,2", count=3),
        row("j_41", "2", ""),
        row("j_41", "1", ""),
        row("j_41", "1", ""),
        row("j_7", "1", ""),
        row("j_7", "", ""),
        row("j_7", "2", "9"),
        row("odd", "1", "", duration=None),
        row("odd", "1", "", count=0),
    ]
    path = put_parquet(tmp_path, rows)
    reader = open_trace(path)
    assert reader.format == "alibaba-dag"
    chunk = next(iter(reader))
    chunk.check()
    assert chunk.parent.tolist() == [41, 41, 41, 41, 7, 7, 7]
    assert chunk.job.tolist() == list(range(7))
    assert chunk.counts().tolist() == [3, 1, 1, 1, 1, 1, 1]
    assert chunk.cpu.tolist() == [500] * 7
    assert chunk.needs is not None
    assert sorted(zip(chunk.needs[0].tolist(), chunk.needs[1].tolist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (0, 3),
    ]
    assert chunk.extra["mem_norm"].tolist() == [0.3] * 7
    assert [bad.line for bad in reader.report.first] == [8, 9]
    assert sum(reader.report.skipped.values()) == 1
    assert reader.fraction == 1.0


def test_alibaba_2017_and_azure_parquet(tmp_path: Path) -> None:
    tasks = [
        {
            **BASE,
            "job_id": "1750/9550",
            "submit_s": 3,
            "n_tasks": 4,
            "cpu": 0.5,
            "group": "g",
            "mem_norm": 0.1,
        }
    ]
    reader = open_trace(put_parquet(tmp_path, tasks))
    chunk = next(iter(reader))
    assert (reader.format, chunk.job.tolist(), chunk.parent.tolist()) == ("alibaba-2017", [9550], [1750])
    assert chunk.duration.tolist() == [2_500_000] * 4
    calls = [{**BASE, "job_id": str(i), "submit_s": i / 8, "duration_s": None} for i in range(3)]
    calls = [{**call, "ctx_tokens": 10, "gen_tokens": 20 + i} for i, call in enumerate(calls)]
    reader = open_trace(put_parquet(tmp_path, calls))
    chunk = next(iter(reader))
    assert (reader.format, reader.has_durations) == ("azure-llm", False)
    assert chunk.arrival.tolist() == [0, 125_000, 250_000]
    assert chunk.extra["gen_tokens"].tolist() == [20, 21, 22]
    assert chunk.duration.tolist() == [0, 0, 0]


def test_google_2019_parquet(tmp_path: Path) -> None:
    rows = [
        {
            "time": at,
            "user": "u",
            "collection_id": 9,
            "instance_index": 1,
            "cpus": 0.5,
            "ram": 0.25,
            "site": "a",
        }
        for at in (700, 200)
    ]
    reader = open_trace(
        put_parquet(tmp_path, rows), options=ReadOptions(whole_cpu=10_000, whole_memory=1 << 20)
    )
    chunk = next(iter(reader))
    chunk.check()
    assert (reader.format, reader.has_durations, reader.report.disordered) == ("google-2019", False, 1)
    assert chunk.arrival.tolist() == [500, 0]
    assert chunk.cpu.tolist() == [5_000, 5_000]
    assert chunk.memory.tolist() == [1 << 18] * 2
    assert chunk.parent.tolist() == [9, 9]


def test_a_cut_parquet_is_refused_with_words(tmp_path: Path) -> None:
    path = put_parquet(tmp_path, [{**BASE, "job_id": "1", "submit_s": 0}])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match="not a whole Parquet file"):
        open_trace(path)


def test_without_pyarrow_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(TraceError, match=re.escape(install_command("report"))):
        open_trace(path)


def test_node_lists(tmp_path: Path) -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,1024,0,\nn1,96000,2048,8,V100M32\nn2,x,1,1,T4\nn3,1\n"
    nodes = read_nodes(put(tmp_path, "n.csv", text))
    assert isinstance(nodes, NodeTable)
    assert (nodes.node_count, nodes.gpu_count, nodes.label) == (2, 8, ("n0", "n1"))
    assert nodes.cpu.tolist() == [32_000, 96_000]
    assert nodes.memory.tolist() == [1 << 30, 2 << 30]
    assert [nodes.names[index] for index in nodes.model.tolist() if index >= 0] == ["V100M32"]
    assert [bad.line for bad in nodes.report.first] == [4, 5]
    shapes = [{"cpus": 0.5, "ram": 0.25, "machine_count": 3, "site": "a"}]
    google = read_nodes(put_parquet(tmp_path, shapes), ReadOptions(whole_cpu=64_000, whole_memory=1 << 30))
    assert (google.node_count, google.cpu.tolist(), google.memory.tolist()) == (3, [32_000], [1 << 28])
    with pytest.raises(TraceError, match="not a list of nodes"):
        read_nodes(put(tmp_path, "a.tr", "1 1 1 1\n"))
    assert np.array_equal(google.count, [3])
