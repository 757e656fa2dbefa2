"""Faults in a replay: the file, and a league that gets over what it says."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from hanse.cli.commands.replay import main
from hanse.sim.replay.fault_file import ReplayFault, read_faults
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.hanse_with_faults import RunWithFaults
from hanse.sim.replay.run_records import ReplayError, ReplayOutcome, ReplaySettings, ReplayWorkload

SECOND = 1_000_000
LEAGUE = ReplaySettings(nodes=40, clusters=4, brokers=3, heartbeat_us=SECOND)


@pytest.fixture
def work() -> ReplayWorkload:
    """80 jobs of 8 tasks of 20 to 27 s, one every 8 s: a load of 0.59 on 40 nodes."""
    jobs, tasks = 80, 8
    return ReplayWorkload(
        "made",
        [job * 8 * SECOND for job in range(jobs)],
        [job * tasks for job in range(jobs + 1)],
        [(20 + task) * SECOND for _ in range(jobs) for task in range(tasks)],
        [23_500_000] * jobs,
        [0] * jobs,
    )


def with_faults(tmp_path: Path, text: str) -> ReplaySettings:
    path = tmp_path / "faults.txt"
    path.write_text(text, encoding="utf-8")
    return msgspec.structs.replace(LEAGUE, faults=str(path))


def all_ended(workload: ReplayWorkload, outcome: ReplayOutcome) -> None:
    """Every job has ended after its last task, and every task has run whole in one of its attempts."""
    assert outcome.complete
    assert bool((outcome.start >= 0).all())
    ends = outcome.start + np.asarray(workload.duration)
    last = np.maximum.reduceat(ends, np.asarray(workload.offset[:-1]))
    assert bool((outcome.job_end >= last).all())
    order = np.lexsort((outcome.start, outcome.node))
    same = np.diff(outcome.node[order]) == 0
    assert bool((outcome.start[order][1:] >= ends[order][:-1])[same].all())


def completion(workload: ReplayWorkload, outcome: ReplayOutcome) -> float:
    return float((outcome.job_end - np.asarray(workload.arrival)).mean()) / SECOND


def test_without_a_fault_only_replication_is_paid_for(tmp_path: Path, work: ReplayWorkload) -> None:
    quiet = run_hanse(work, with_faults(tmp_path, "# nothing breaks\n\n"))
    all_ended(work, quiet)
    assert quiet.launches == work.task_count
    plain = run_hanse(work, LEAGUE)
    # a job waits for its heir's word when it comes (2 messages), and when it ends (50 ms and 2 messages)
    assert 0.05 <= completion(work, quiet) - completion(work, plain) < 0.5
    assert quiet.messages > plain.messages


@pytest.mark.parametrize(
    "text",
    [
        "lose broker 2 at 300s",
        "lose broker 1 at 300s for 100s",
        "lose broker 1 at 300.2s for 1s",
        "partition broker 1 at 400s for 60s",
        "partition broker 2 cluster 1 cluster 2 at 400s for 60s",
    ],
)
def test_every_job_ends_whatever_happens_to_a_broker(tmp_path: Path, work: ReplayWorkload, text: str) -> None:
    all_ended(work, run_hanse(work, with_faults(tmp_path, text)))


def test_what_a_lost_cluster_ran_runs_again_elsewhere(tmp_path: Path, work: ReplayWorkload) -> None:
    outcome = run_hanse(work, with_faults(tmp_path, "lose cluster 3 at 300s for 5m"))
    all_ended(work, outcome)
    again = outcome.launches - work.task_count
    assert 0 < again <= 2 * 10  # what ran on its ten nodes, and what was on its way there
    assert completion(work, outcome) > completion(work, run_hanse(work, with_faults(tmp_path, ""))) + 1
    # nothing succeeded there while it was away
    there = (outcome.node >= 20) & (outcome.node < 30)
    ends = outcome.start + np.asarray(work.duration)
    away = (outcome.start < 600 * SECOND) & (ends > 300 * SECOND)
    assert not bool((there & away).any())
    assert bool((there & (outcome.start > 600 * SECOND)).any())


def test_a_cluster_that_is_cut_off_for_a_minute_loses_its_lease(tmp_path: Path, work: ReplayWorkload) -> None:
    outcome = run_hanse(work, with_faults(tmp_path, "partition cluster 2 at 320s for 60s"))
    all_ended(work, outcome)
    assert outcome.launches > work.task_count  # its watchdogs end what runs there, after 30 s without a word
    short = run_hanse(work, with_faults(tmp_path, "partition cluster 2 at 300s for 5s"))
    all_ended(work, short)
    assert short.launches == work.task_count


def test_the_command_says_what_faults_cost(tmp_path: Path) -> None:
    trace, out = tmp_path / "made.tr", tmp_path / "out.json"
    trace.write_text("".join(f"{8 * job} 8 23.5 {' '.join(map(str, range(20, 28)))}\n" for job in range(40)))
    faults = with_faults(tmp_path, "lose cluster 3 at 100s for 5m\nlose broker 1 at 150s for 20s\n").faults
    words = ["replay", str(trace), "--nodes", "40", "--clusters", "4", "--brokers", "3", "--heartbeat", "1"]
    words += ["--policy", "hanse", "--faults", faults, "--json", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    broken, whole = json.loads(out.read_text())
    assert (broken["policy"], whole["policy"]) == ("hanse", "hanse unbroken")
    assert broken["jobs_ended"] == whole["jobs_ended"] == 40
    assert broken["starts_per_task"] > whole["starts_per_task"] == 1
    assert broken["jct_mean"] > whole["jct_mean"]
    again = round((broken["starts_per_task"] - 1) * broken["tasks"])
    assert f"; {again} tasks more were started; all 40 jobs ended." in result.output.replace("\n", " ")
    result = CliRunner().invoke(main, [*words, "--no-baseline"])
    assert result.exit_code == 0, result.output
    (alone,) = json.loads(out.read_text())
    assert alone["delay_mean"] == broken["delay_mean"]


def test_equal_seeds_give_equal_runs(tmp_path: Path, work: ReplayWorkload) -> None:
    settings = with_faults(tmp_path, "lose broker 2 at 300s\npartition cluster 1 at 500s for 60s")
    first, again = run_hanse(work, settings), run_hanse(work, settings)
    assert np.array_equal(first.start, again.start)
    assert np.array_equal(first.job_end, again.job_end)
    assert (first.messages, first.heartbeats, first.launches) == (
        again.messages,
        again.heartbeats,
        again.launches,
    )


def test_a_run_that_can_never_end_is_refused(work: ReplayWorkload) -> None:
    # what read_faults would not let through: nobody is left to adopt
    single = msgspec.structs.replace(LEAGUE, brokers=1)
    run = RunWithFaults(work, single, (ReplayFault(False, (0,), (), 500 * SECOND, None),))
    with pytest.raises(ReplayError, match="can never end"):
        run.run(None)


def test_a_file_says_what_breaks(tmp_path: Path) -> None:
    settings = with_faults(
        tmp_path, "partition broker 1  cluster 2 at 1h for 60s # soon\nlose cluster 4 at 1.5s for 200ms\n"
    )
    assert read_faults(settings) == (
        ReplayFault(False, (), (3,), 1_500_000, 200_000),
        ReplayFault(True, (0,), (1,), 3_600 * SECOND, 60 * SECOND),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lose broker 4 at 1s", "line 1: there is no broker 4, only 1 to 3"),
        ("\nlose cluster 0 at 1s", "line 2: there is no cluster 0, only 1 to 4"),
        ("break broker 1 at 1s", "is not a fault; write for example"),
        ("lose broker 1 at noon", "'noon' is not a time"),
        ("partition cluster 1 at 1s", "needs its length"),
        ("lose broker 1 broker 2 broker 3 at 1s", "one broker and one cluster must be left"),
        ("lose broker 1 at 1s\nlose broker 2 at 100s", "at least 120 s apart"),
        ("lose broker 1 at 1s\nlose cluster 2 at 900s", "cannot both be lost for good"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    settings = with_faults(tmp_path, text)
    with pytest.raises(ReplayError, match=sentence):
        read_faults(settings)
    trace = tmp_path / "made.tr"
    trace.write_text("0 1 1.0 1.0\n")
    arguments = ["replay", str(trace), "--nodes", "40", "--clusters", "4", "--brokers", "3"]
    result = CliRunner().invoke(main, [*arguments, "--policy", "hanse", "--faults", settings.faults])
    assert result.exit_code == 2
    assert sentence in result.output
