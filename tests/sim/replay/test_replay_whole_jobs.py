"""Schedulers for whole jobs as policies of the command: figures by hand, and refusals that say why."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hanse.cli.commands.replay import main
from hanse.sim.replay.sweep import read_finished_runs
from hanse.sim.replay.validate import traces_folder
from hanse.sim.replay.whole_job_policies import FAMILIES

_FOLDER = traces_folder()


def swf(tmp_path: Path, jobs: list[tuple[int, int, int, int]]) -> Path:
    """A log of jobs as (submit, run, processors, requested time), seconds."""
    path = tmp_path / "log.swf"
    lines = [
        f"{number + 1} {submit} -1 {run} {processors} -1 -1 {processors} {request} -1 1 1 1 1 1 1 -1 -1"
        for number, (submit, run, processors, request) in enumerate(jobs)
    ]
    path.write_text("\n".join(["; Version: 2.2", *lines]) + "\n")
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["replay", *(str(argument) for argument in arguments)])
    return result.exit_code, result.output


def rows(tmp_path: Path, *arguments: str | Path) -> dict[str, dict[str, Any]]:
    out = tmp_path / "out.json"
    code, output = run(*arguments, "--json", out, "--report", tmp_path / "out.html")
    assert code == 0, output
    assert "nan" not in (tmp_path / "out.html").read_text()
    return {each["policy"]: each for each in json.loads(out.read_text())}


def test_rigid_jobs_wait_as_worked_out_by_hand(tmp_path: Path) -> None:
    # Four processors: A (3 wide, 100 s) runs, B (4 wide) must wait for it, C (1 wide, 50 s) could pass.
    trace = swf(tmp_path, [(0, 100, 3, 100), (10, 100, 4, 100), (20, 50, 1, 50)])
    found = rows(tmp_path, trace, "--nodes", "4", "--policy", "fcfs,sjf,easy,conservative")
    # fcfs: B waits 90, C until B has ended at 200: 180
    assert found["fcfs"]["delay_mean"] == pytest.approx((0 + 90 + 180) / 3)
    assert found["fcfs"]["makespan"] == 250
    assert found["fcfs"]["utilisation"] == pytest.approx((300 + 400 + 50) / (4 * 250))
    # sjf: C is first in the queue when it comes, and there is a processor for it
    assert found["sjf"]["delay_mean"] == pytest.approx((0 + 90 + 0) / 3)
    for name in ("easy", "conservative"):
        assert found[name]["delay_mean"] == pytest.approx(90 / 3)
        assert (found[name]["order"], found[name]["jobs"], found[name]["complete"]) == ("fifo", 3, True)


def test_a_load_can_be_asked_for(tmp_path: Path) -> None:
    trace = swf(tmp_path, [(0, 100, 3, 100), (10, 100, 4, 100), (20, 50, 1, 50)])
    found = rows(tmp_path, trace, "--nodes", "4", "--policy", "easy", "--load", "0.5")
    assert found["easy"]["load"] == pytest.approx(0.5)


def test_a_sweep_runs_whole_jobs_over_loads_and_goes_on(tmp_path: Path) -> None:
    jobs = [(10 * number, 100 + 7 * (number % 5), 1 + number % 4, 150) for number in range(40)]
    trace, out = swf(tmp_path, jobs), tmp_path / "sweep.jsonl"
    words = ["sweep", str(trace), "--nodes", "4", "--policy", "fcfs,easy", "--loads", "0.3,0.9"]
    words += ["--brokers", "1,2", "--processes", "1", "--out", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    found = list(read_finished_runs(out).values())
    assert [(each["policy"], each["target_load"]) for each in found] == [
        (policy, load) for load in (0.3, 0.9) for policy in ("fcfs", "easy")
    ]
    for each in found:
        assert each["load"] == pytest.approx(each["target_load"], rel=0.01)
        alone = rows(
            tmp_path, trace, "--nodes", "4", "--policy", each["policy"], "--load", str(each["target_load"])
        )
        assert alone[each["policy"]]["delay_mean"] == pytest.approx(each["delay_mean"])
    assert "4 of them" in CliRunner().invoke(main, words).output


@pytest.mark.parametrize(
    ("names", "sentence"), [("fcfs,central", "runs whole jobs"), ("tiresias", "cannot be run on log.swf")]
)
def test_a_sweep_refuses_what_a_trace_cannot_serve(tmp_path: Path, names: str, sentence: str) -> None:
    trace, out = swf(tmp_path, [(0, 100, 3, 100)]), tmp_path / "sweep.jsonl"
    words = ["sweep", str(trace), "--nodes", "4", "--clusters", "1", "--policy", names, "--out", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert sentence in result.output
    assert not out.exists()


def test_a_refusal_in_the_middle_of_a_sweep_is_a_sentence(tmp_path: Path) -> None:
    trace, out = swf(tmp_path, [(0, 100, 3, 100), (5, 100, 9, 100)]), tmp_path / "sweep.jsonl"
    words = ["sweep", str(trace), "--nodes", "4", "--policy", "fcfs", "--processes", "1", "--out", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "hold more than 4 processors" in result.output


@pytest.mark.skipif(_FOLDER is None, reason="needs the public traces: HANSE_TRACES or ../shared/traces")
class TestPublicTraces:
    def trace(self, name: str) -> Path:
        assert _FOLDER is not None
        return _FOLDER / name

    def test_published_waits_come_out(self, tmp_path: Path) -> None:
        found = rows(tmp_path, self.trace("swf/kth_sp2_1996.swf.gz"), "--nodes", "100", "--policy", "sjf")
        assert found["sjf"]["delay_mean"] == pytest.approx(15312.27, rel=1e-5)
        assert found["sjf"]["makespan"] == 28763776

    def test_gpu_jobs(self, tmp_path: Path) -> None:
        names = ",".join(FAMILIES["gpu"])
        found = rows(
            tmp_path, self.trace("muri/trace3.csv"), "--nodes", "8", "--policy", names, "--limit", "200"
        )
        assert list(found) == list(FAMILIES["gpu"])
        assert found["srtf"]["jct_mean"] < found["fifo"]["jct_mean"]
        assert all(0 < each["utilisation"] <= 1 for each in found.values())

    def test_pods_are_placed_on_a_list_of_machines(self, tmp_path: Path) -> None:
        pods = self.trace("openb/openb_pod_list_default.csv.gz")
        machines = self.trace("openb/openb_node_list_gpu_node.csv")
        found = rows(
            tmp_path, pods, "--nodes", "1213", "--policy", "random,dot-product", "--node-list", machines
        )
        assert found["random"]["utilisation"] == pytest.approx(0.8747, abs=0.01)
        assert found["dot-product"]["utilisation"] > found["random"]["utilisation"]
        assert found["random"]["delay_mean"] is None
        code, output = run(pods, "--nodes", "1213", "--policy", "fgd")
        assert (code, "--node-list" in output) == (2, True)


def test_what_the_trace_cannot_serve_is_refused(tmp_path: Path) -> None:
    tasks = tmp_path / "made.tr"
    tasks.write_text("0 2 1.0 1.0 1.0\n1 1 1.0 1.0\n")
    trace = swf(tmp_path, [(0, 100, 3, 100), (10, 100, 4, 100)])
    faults = tmp_path / "faults.txt"
    faults.write_text("")
    for arguments, sentence in (
        ((tasks, "--nodes", "4", "--policy", "easy"), "must have rigid parallel jobs"),
        ((tasks, "--nodes", "4", "--policy", "tiresias"), "must have jobs that ask for GPUs"),
        ((tasks, "--nodes", "4", "--policy", "sjf"), "rigid parallel jobs with their processors"),
        ((trace, "--nodes", "4", "--policy", "tiresias"), "cannot be run on log.swf"),
        ((trace, "--nodes", "4", "--policy", "easy,tiresias"), "different kinds of jobs"),
        ((trace, "--nodes", "4", "--policy", "easy,central"), "give such policies alone"),
        ((trace, "--nodes", "3", "--policy", "easy"), "use --nodes 4 or more"),
        ((trace, "--nodes", "4", "--policy", "easy", "--faults", faults), "faults cannot be injected"),
    ):
        code, output = run(*arguments)
        assert code == 2, (arguments, output)
        assert sentence in " ".join(output.split()), (sentence, output)
        assert "Traceback" not in output


def test_every_policy_is_listed() -> None:
    output = CliRunner().invoke(main, ["policies"]).output
    for family in FAMILIES.values():
        for policy in family.values():
            assert f"{policy.name:<15} {policy.about}" in output
    assert "hanse " in output
