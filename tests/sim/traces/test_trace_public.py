"""Public traces, where they are at hand: the counts and sums that their publishers or papers state.

They lie in ``../shared/traces`` beside the project, or where ``HANSE_TRACES`` says; none of them is kept
here.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from hanse.sim.traces import CancelledRule, ReadOptions, load_with_report, open_trace, read_nodes
from hanse.sim.traces.describe import TraceDescription

FOLDER = Path(os.environ.get("HANSE_TRACES") or Path(__file__).parents[4] / "shared" / "traces")
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason=f"public traces are not at hand: put them in {FOLDER}, or name their folder in HANSE_TRACES",
)
# path, format, jobs, tasks, bad rows, mean demand in slots (rounded; None = not checked)
COUNTS = [
    ("tr/YH1_sub.tr.gz", "tr", 2_910, 122_878, 0, 3_227),
    ("tr/GOOG_subtrace.tr.gz", "tr", 10_000, 312_558, 0, 4_704),
    ("tr/synthetic_FB.tr.gz", "tr", 2_000, 159_921, 0, 4_444),
    ("tr/YH_small.tr.gz", "tr", 10, 183, 0, None),
    ("tr/syn_250.tr.gz", "tr", 2_000, 500_000, 0, None),
    ("tr/NYH_70.tr.gz", "tr", 5_001, 100_350, 0, None),
    ("tr/NGO_70.tr.gz", "tr", 5_001, 10_291, 0, None),
    ("tr/EXP_90.tr.gz", "tr", 5_000, 22_675, 0, None),
    ("swf/kth_sp2_1996.swf.gz", "swf", 28_475, 28_475, 1, None),
    ("swf/nasa_ipsc_1993.swf.gz", "swf", 18_239, 18_239, 0, None),
    ("swf/lublin_256_synthetic.swf.gz", "swf", 10_000, 10_000, 0, None),
    ("swf/lcg_2005_first7days.swf.gz", "swf", 83_121, 83_121, 0, None),
    ("openb/openb_pod_list_default.csv.gz", "openb", 8_152, 8_152, 0, None),
    ("openb/openb_pod_list_multigpu20.csv.gz", "openb", 8_324, 8_324, 0, None),
    ("philly/philly_2017_sep_oct.csv.gz", "philly", 44_657, 44_657, 0, None),
    ("muri/trace1.csv", "muri", 1_494, 1_494, 0, None),
    ("muri/trace3.csv", "muri", 992, 992, 0, None),
    ("muri/trace3_pr.csv", "muri", 992, 992, 0, None),
    ("alibaba/gaia_pai_100k.csv.gz", "gaia", 99_998, 99_998, 0, None),
    ("energy/gaia_pai_1k.csv.gz", "gaia", 1_000, 1_000, 0, None),
    ("alibaba/alibaba_2017_tasks.parquet", "alibaba-2017", 31_756, 2_551_075, 0, None),
    ("alibaba/alibaba_2018_dag_sample20.parquet", "alibaba-dag", 13_883, 621_021, 0, None),
    ("azure/azure_llm2023_code.parquet", "azure-llm", 8_819, 8_819, 0, None),
    ("azure/azure_llm2023_conv.parquet", "azure-llm", 19_366, 19_366, 0, None),
    ("google/google2019_8cells_10k_instances.parquet", "google-2019", 80_000, 80_000, 0, None),
]


@pytest.mark.parametrize(("path", "form", "jobs", "tasks", "bad", "demand"), COUNTS)
def test_counts(path: str, form: str, jobs: int, tasks: int, bad: int, demand: int | None) -> None:
    if path.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow (the extra for Parquet) is not installed")
    reader = open_trace(FOLDER / path)
    found = TraceDescription()
    for chunk in reader:
        chunk.check()
        found.add(chunk)
    facts = found.as_dict()
    assert reader.format == form
    assert (facts["jobs"], facts["tasks"], reader.report.bad) == (jobs, tasks, bad)
    assert (reader.report.jobs, reader.report.tasks) == (jobs, tasks)
    assert reader.report.rows == jobs + bad + sum(reader.report.skipped.values())
    if demand is not None:
        assert round(facts["mean_demand_slots"]) == demand


def test_kth_as_the_archive_describes_it() -> None:
    reader = open_trace(FOLDER / "swf/kth_sp2_1996.swf.gz")
    chunks = list(reader)
    assert (reader.nodes_hint, reader.unix_start) == (100, 843480031)
    assert reader.report.first[0].line == 27_323
    # with shortest job first the makespan, 28763776 s, is the end of the last arrival's run
    last = chunks[-1]
    assert int(last.arrival[-1] + last.duration[-1]) == 28_763_776_000_000


def test_nasa_without_its_jobs_of_no_length() -> None:
    rules = ReadOptions(skip_zero_runtime=True, cancelled=CancelledRule.KEEP)
    chunk, report = load_with_report(FOLDER / "swf/nasa_ipsc_1993.swf.gz", options=rules)
    assert chunk.job_count == 18_066
    assert sum(report.skipped.values()) == 173


def test_lcg_names_its_sites() -> None:
    chunk, _ = load_with_report(FOLDER / "swf/lcg_2005_first7days.swf.gz")
    sites = {chunk.name(index) for index in np.unique(chunk.site)}
    assert 100 < len(sites) <= 170
    assert "grid.ici.ro" in sites
    assert set(chunk.cpu.tolist()) == {1_000}


def test_node_lists() -> None:
    nodes = read_nodes(FOLDER / "openb/openb_node_list_all_node.csv")
    assert (nodes.node_count, nodes.gpu_count, nodes.report.bad) == (1_523, 6_212, 0)
    pytest.importorskip("pyarrow", reason="pyarrow (the extra for Parquet) is not installed")
    assert read_nodes(FOLDER / "google/google2019_8cells_hosts.parquet").node_count == 96_591


def test_truncation_changes_durations_alone() -> None:
    path = FOLDER / "tr/GOOG_subtrace.tr.gz"
    exact, _ = load_with_report(path)
    cut, _ = load_with_report(path, options=ReadOptions(truncate_seconds=True))
    assert np.array_equal(cut.duration, exact.duration // 1_000_000 * 1_000_000)
    assert np.array_equal(cut.arrival, exact.arrival)


def test_alibaba_dags_have_their_edges() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow (the extra for Parquet) is not installed")
    chunk, report = load_with_report(FOLDER / "alibaba/alibaba_2018_dag_sample20.parquet")
    assert len(np.unique(chunk.parent)) == 3_350
    assert chunk.needs is not None
    assert np.array_equal(chunk.parent[chunk.needs[0]], chunk.parent[chunk.needs[1]])
    assert len(chunk.needs[0]) > 5_000
    assert report.skipped == {}
