"""What is written for Slurm and read from it: names, records, lists; without any Slurm."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.core.config import NodeConfig
from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data
from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.attempt_store import NO_PROGRAM, EndReason, SlurmAttempt
from hanse.live.backends.slurm.batch_script import (
    BatchScriptWriter,
    BeginRecord,
    EndRecord,
    read_begin_record,
    read_end_record,
)
from hanse.live.backends.slurm.capacity import (
    NODE_ATTRIBUTE,
    SlurmCapacity,
    held_resources,
    requested_amounts,
)
from hanse.live.backends.slurm.cli import read_job, read_node, read_partition
from hanse.live.backends.slurm.driver import (
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmRefusedError,
    SlurmRetryLaterError,
    SlurmUnavailableError,
    error_of_complaint,
    parse_gres,
)
from hanse.live.backends.slurm.exit_status import end_from_record
from hanse.live.backends.slurm.job_names import (
    TASKS_CHARACTERS_MAX,
    AttemptId,
    format_tasks,
    parse_tasks,
    split_tasks,
)
from hanse.live.backends.slurm.pending_reasons import explain_reason, is_barred
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.model.ids import TaskId
from hanse.model.messages import Outcome
from hanse.model.program import Program
from hanse.model.resources import Resources
from tests.live.backends.desk import launch
from tests.live.backends.places import run

# --- names --------------------------------------------------------------------------------------------------

keys = st.lists(
    st.tuples(
        st.builds(
            lambda job, index: TaskId((1 << 52) | job << 20 | index), st.integers(0, 3), st.integers(0, 40)
        ),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=60,
)


@given(keys)
def test_tasks_are_read_as_they_were_written(some: list[AttemptId]) -> None:
    assert parse_tasks(format_tasks(some)) == tuple(some)


@given(keys, st.integers(1, 50))
def test_tasks_are_cut_into_short_names_in_their_order(some: list[AttemptId], most: int) -> None:
    cut = split_tasks(some, most)
    assert [key for part in cut for key in part] == some
    assert all(1 <= len(part) <= most for part in cut)
    assert all(len(part) == 1 or len(format_tasks(part)) <= TASKS_CHARACTERS_MAX for part in cut)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1-7.0",
        "1-7.0#",
        "1-7.0#x",
        "1-7.5..3#1",
        "1-7.0..#1",
        "1-7.0#1+",
        "1-7.0..99999999#1",
        "1-7#1",
    ],
)
def test_other_names_are_nobodys_tasks(text: str) -> None:
    assert parse_tasks(text) is None


def test_an_array_takes_one_name() -> None:
    some = [(TaskId(1 << 52 | index), 1) for index in range(200)]
    assert format_tasks(some) == "1-0.0..199#1"
    assert split_tasks(some, 200) == [some]


# --- lists --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:2,fpga:3", {"gpu": 2, "fpga": 3}),
        ("gpu:a100:2(S:0-1),gpu:v100:1(S:1)", {"gpu": 3}),
        ("gpu:0,fpga:0", {}),
        ("gres:gpu:1", {"gpu": 1}),
        ("gres/gpu=4", {"gpu": 4}),
        ("gpu", {"gpu": 1}),
        ("gpu:a100:2(IDX:0,3),fpga:1", {"gpu": 2, "fpga": 1}),
        ("(null)", {}),
        ("N/A", {}),
        ("", {}),
    ],
)
def test_generic_resources_are_counted(text: str, counts: dict[str, int]) -> None:
    assert dict(parse_gres(text)) == counts


def test_a_line_of_squeue() -> None:
    line = "12|3|15|RUNNING|n1|2|1.50G|gres:gpu:1|1700000000|None|hanse:north:00:1-7.0..4#1"
    expected = SlurmJob(
        12, 3, 15, "hanse:north:00:1-7.0..4#1", "RUNNING", "n1", 2, 3 << 29, (("gpu", 1),),
        launched_at=1_700_000_000,
    )  # fmt: skip
    assert read_job(line) == expected
    assert expected.reference == "12_3"
    alone = read_job("12|N/A|12|PENDING||1|64M|N/A|1700000000|BeginTime|a|b")
    assert alone == SlurmJob(12, -1, 12, "a|b", "PENDING", "", 1, 64 << 20, reason="BeginTime")  # a guess
    assert alone is not None
    assert alone.reference == "12"
    assert read_job("slurm_load_jobs error: x") is None


@pytest.mark.parametrize(
    ("state", "is_open"),
    [
        ("IDLE", True), ("MIXED", True), ("ALLOCATED+COMPLETING", True), ("IDLE+POWERED_DOWN", False),
        ("IDLE+DRAIN", False), ("MIXED+DRAIN", False), ("DOWN", False), ("IDLE*", False),
        ("DOWN*+DRAIN", False), ("IDLE+NOT_RESPONDING", False), ("UNKNOWN", False),
        ("IDLE+RESERVED", False), ("IDLE+MAINT", False),
    ],
)  # fmt: skip
def test_which_nodes_are_open(state: str, is_open: bool) -> None:
    node = read_node(
        f"NodeName=n1 Arch=x86_64  CPUAlloc=3 CPUEfctv=14 CPUTot=16 ActiveFeatures=b,a Gres=gpu:2 "
        f"GresUsed=gpu:1(IDX:0) OS=Linux 6.1 #1 SMP x=y RealMemory=4000 AllocMem=64 State={state} "
        f"MemSpecLimit=100 Partitions=p,q Reason=Duplicate jobid [root@2026-11-16T17:44:48]"
    )
    assert node == SlurmNode(
        "n1", is_open, 14, 3_900 << 20, (("gpu", 2),), 3, 64 << 20, (("gpu", 1),), ("p", "q"), ("a", "b"),
        "x86_64", "Linux", state, "Duplicate jobid [root@2026-11-16T17:44:48]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            SlurmUnavailableError,
        ),
        ("Batch job submission failed: Socket timed out on send/recv operation", SlurmUnavailableError),
        ("Connection reset by peer", SlurmUnavailableError),
        ("Broken pipe", SlurmUnavailableError),
        ("Required node not available (down, drained or reserved)", SlurmRetryLaterError),
        ("Required partition not available (inactive or drain)", SlurmRetryLaterError),
        ("Slurm temporarily unable to accept job, sleeping and retrying", SlurmRetryLaterError),
        ("Batch job submission failed: Invalid account or account/partition combination", SlurmRefusedError),
        ("Requested node configuration is not available", SlurmRefusedError),
    ],
)
def test_what_slurm_means(words: str, kind: type[Exception]) -> None:
    assert type(error_of_complaint(words)) is kind


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("PartitionName=a AllowGroups=ALL Default=YES State=UP X=y", SlurmPartition("a", True, True)),
        ("PartitionName=b Default=NO State=DOWN X=y", SlurmPartition("b", False, False)),
        ("PartitionName=c Default=NO State=DRAIN", SlurmPartition("c", False, False)),
        ("PartitionName=d Default=NO State=INACTIVE", SlurmPartition("d", False, False)),
    ],
)
def test_a_line_of_a_partition(line: str, found: SlurmPartition) -> None:
    assert read_partition(line) == found


@pytest.mark.parametrize(
    ("reason", "words", "barred"),
    [
        ("PartitionDown", "PartitionDown (the partition is down)", True),
        ("QOSNotAllowed", "QOSNotAllowed (the QOS is not allowed here)", True),
        ("QOSGrpCpuLimit", "QOSGrpCpuLimit (a limit of the QOS is reached)", True),
        ("Resources", "Resources (there is no room for it yet)", False),
        ("Priority", "Priority (other jobs come first)", False),
        ("WhateverComesNext", "WhateverComesNext", False),
        ("", "", False),
    ],
)
def test_reasons_in_words(reason: str, words: str, barred: bool) -> None:
    assert (explain_reason(reason), is_barred(reason)) == (words, barred)


# --- room ---------------------------------------------------------------------------------------------------


def test_what_is_asked_of_slurm_is_rounded_up() -> None:
    assert requested_amounts(Resources(1_001, (64 << 20) + 1, 2, (("fpga", 1),))) == (
        2,
        65,
        (("fpga", 1), ("gpu", 2)),
    )
    assert requested_amounts(Resources()) == (1, 64, ())  # no memory would mean all of it
    assert held_resources(Resources(500)) == Resources(1_000, 64 << 20)


def test_a_job_that_ends_between_two_lists_is_not_taken_for_anothers() -> None:
    room = SlurmCapacity((NodeConfig(Resources(4_000, 4 << 30), ((NODE_ATTRIBUTE, "n1"),)),))
    mine = SlurmJob(1, -1, 1, "hanse:x", "RUNNING", "n1", 2, 1 << 30)
    busy = SlurmNode("n1", True, 4, 4 << 30, (), 2, 1 << 30, (), (), (), "", "")
    assert room.update([busy], [mine], {0: [Resources(2_000, 1 << 30)]}) == []
    assert room.update([busy], [], {}) == []  # it has just ended
    assert room.update([busy], [], {}) == [(0, Resources(2_000, 1 << 30))]  # somebody else's


def test_a_job_that_came_and_went_between_two_looks_is_not_taken_for_anothers() -> None:
    room = SlurmCapacity((NodeConfig(Resources(4_000, 4 << 30), ((NODE_ATTRIBUTE, "n1"),)),))
    mine = SlurmJob(1, -1, 1, "hanse:x", "COMPLETED", "n1", 2, 1 << 30)
    busy = SlurmNode("n1", True, 4, 4 << 30, (), 2, 1 << 30, (), (), (), "", "")
    assert room.update([busy], [mine], {}) == []
    assert room.update([busy], [mine], {}) == [(0, Resources(2_000, 1 << 30))]


def test_a_node_that_slurm_has_no_more_is_withheld() -> None:
    whole = Resources(4_000, 4 << 30)
    room = SlurmCapacity((NodeConfig(whole, ((NODE_ATTRIBUTE, "n1"),)), NodeConfig(whole)))
    assert room.update([], [], {}) == [(0, whole)]
    assert room.withhold_all() == [(1, whole)]
    smaller = SlurmNode("n1", True, 3, 4 << 30, (), 0, 0, (), (), (), "", "")
    assert room.update([smaller], [], {}) == [(0, Resources(1_000)), (1, Resources())]


@pytest.mark.parametrize(
    ("ours", "shut", "withheld"),
    [
        ("", (), ()),
        ("", ("batch",), (0, 1, 3)),  # jobs that name none go to the default
        ("", ("small",), ()),
        ("", ("apart",), (2,)),  # not in the default: judged by its own
        ("small", ("batch",), (1,)),
        ("small", ("small",), (0, 3)),
        ("gone", ("small",), ()),  # Slurm says nothing of it; each node has an open one
    ],
)
def test_room_of_a_closed_partition_is_withheld(
    ours: str, shut: tuple[str, ...], withheld: tuple[int, ...]
) -> None:
    whole = Resources(4_000, 4 << 30)
    within = {"n1": ("batch", "small"), "n2": ("batch",), "n3": ("apart",)}
    nodes = [
        SlurmNode(name, True, 4, 4 << 30, (), 0, 0, (), each, (), "", "") for name, each in within.items()
    ]
    partitions = [
        SlurmPartition(name, name not in shut, name == "batch") for name in ("batch", "small", "apart")
    ]
    configs = (*(NodeConfig(whole, ((NODE_ATTRIBUTE, name),)) for name in within), NodeConfig(whole))
    room = SlurmCapacity(configs, ours)
    assert room.update(nodes, [], {}, partitions) == [(number, whole) for number in withheld]
    every = [SlurmPartition(each.name, True, each.is_default) for each in partitions]
    assert room.update(nodes, [], {}, every) == [(number, Resources()) for number in withheld]


# --- records and ends ---------------------------------------------------------------------------------------


def test_records_are_read_or_not_believed() -> None:
    assert read_begin_record("ran 12 0 1700000000000\n") == BeginRecord("ran", 12, 0, 1_700_000_000_000)
    assert read_begin_record("revoked\n") == BeginRecord("revoked")
    assert read_begin_record("ran 12 0") is None
    assert read_begin_record("") is None
    ended = read_end_record("0 137 0m1.5s 1m0.25s 4096 1000 3500 outside\n")
    assert ended == EndRecord(0, -9, 61_750_000, 4_096, 2_500_000, True)
    assert read_end_record("0 255 0m0s 0m0s 0 1 2 inside") == EndRecord(0, 255, 0, 0, 1_000, False)
    assert read_end_record("0 0 0m0s") is None


@pytest.mark.parametrize(
    ("state", "outcome", "note"),
    [
        ("TIMEOUT", Outcome.FAILED, "time limit"),
        ("PREEMPTED", Outcome.PREEMPTED, "preempted"),
        ("NODE_FAIL", Outcome.LOST, "node failed"),
        ("OUT_OF_MEMORY", Outcome.FAILED, "out of memory"),
        ("CANCELLED", Outcome.FAILED, "somebody else"),
        ("FAILED", Outcome.FAILED, ""),
        ("", Outcome.FAILED, ""),
    ],
)
def test_slurm_explains_why_a_task_was_killed(state: str, outcome: Outcome, note: str) -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    killed = EndRecord(0, -9, 0, 0, 0, False)
    assert end_from_record(attempt, killed, None) is None
    end = end_from_record(attempt, killed, state)
    assert end is not None
    assert (end.outcome, end.exit_code) == (outcome, -9)
    assert note in end.note
    assert bool(note) == bool(end.note)


@pytest.mark.parametrize(
    ("state", "outcome", "note"),
    [
        ("PENDING", Outcome.LOST, "anew"),
        ("REQUEUE_HOLD", Outcome.LOST, "anew"),
        ("", Outcome.LOST, "does not say why"),
        ("PREEMPTED", Outcome.PREEMPTED, "preempted"),
        ("CANCELLED", Outcome.FAILED, "somebody else"),
        ("FAILED", Outcome.FAILED, ""),
    ],
)
def test_what_was_ended_from_outside_has_failed_only_if_somebody_wanted_that(
    state: str, outcome: Outcome, note: str
) -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    end = end_from_record(attempt, EndRecord(0, -15, 0, 0, 0, True), state)
    assert end is not None
    assert end.outcome is outcome
    assert note in end.note


def test_who_wanted_an_end_decides_what_it_is_called() -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    by_itself, by_lease, by_order = (
        EndRecord(why, code, 0, 0, 0, False) for why, code in ((0, 3), (10, -9), (11, 0))
    )
    for ended, outcome in (
        (by_itself, Outcome.FAILED),
        (by_lease, Outcome.LOST),
        (by_order, Outcome.CANCELLED),
    ):
        end = end_from_record(attempt, ended, None)
        assert end is not None
        assert end.outcome is outcome
    attempt.end_reason = EndReason(Outcome.LOST, "its node failed")
    ends = [end_from_record(attempt, ended, None) for ended in (by_itself, by_order)]
    assert [end and end.outcome for end in ends] == [Outcome.FAILED, Outcome.LOST]


def test_an_attempt_is_taken_once(tmp_path: Path) -> None:
    shared = SharedDirectory(tmp_path / "shared", TaskUser())
    instance = shared.make_directories()
    assert shared.make_directories() == instance
    one, other = (TaskId(5), 1), (TaskId(6), 1)
    assert shared.revoke(one).begin == BeginRecord("revoked")
    (shared.records / "6.1.began").write_text("ran 4 0 5\n", encoding="ascii")
    assert shared.revoke(other).begin == BeginRecord("ran", 4, 0, 5)
    shared.write_orders(one, "run")
    shared.write_orders(one, "stop 3600000")
    shared.write_orders(one, "stop 0")
    assert shared.read_orders(one) == "stop 0"
    shared.drop_records(one)
    assert shared.read_orders(one) == ""
    assert shared.read_records(one).begin is None


def test_the_lease_is_written_in_place(tmp_path: Path) -> None:
    shared = SharedDirectory(tmp_path / "shared", TaskUser())
    shared.make_directories()
    assert shared.read_lease() == 0
    inode = (tmp_path / "shared" / "lease").stat().st_ino
    for until in (1_700_000_000_000, 9):
        shared.write_lease(until)
        assert shared.read_lease() == until
    assert (tmp_path / "shared" / "lease").stat().st_ino == inode


# --- the script without Slurm -------------------------------------------------------------------------------


class Scripted:
    """Runs a task's script as Slurm would."""

    def __init__(self, place: Path) -> None:
        self.shared = SharedDirectory(place / "shared", TaskUser())
        self.shared.make_directories()
        self.maker = BatchScriptWriter(self.shared.path, "north")
        self.key = (TaskId(7), 1)

    def run(self, *argv: str, job: int = 1) -> int:
        command = Program(argv)
        text = self.maker.write_script(launch(run(*argv)), command, [self.key])
        env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": str(job)}
        return subprocess.run(["/bin/sh"], input=text.encode(), env=env, check=False, timeout=60).returncode


def test_a_script_runs_its_task_once(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    scripted.shared.write_orders(scripted.key, "run")
    program = ("/bin/sh", "-c", f"echo x >> {tmp_path}/log; exit 3")
    assert scripted.run(*program) == 3
    assert scripted.run(*program, job=2) == 0
    assert (tmp_path / "log").read_text() == "x\n"
    known = scripted.shared.read_records(scripted.key)
    assert known.begin is not None
    assert (known.begin.kind, known.begin.job, known.has_refusal) == ("ran", 1, True)
    assert known.end is not None
    assert (known.end.cause, known.end.code, known.end.ended_externally) == (0, 3, False)


def test_a_script_does_not_run_what_was_revoked_or_forgotten(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    program = ("/bin/sh", "-c", f"echo x >> {tmp_path}/log")
    assert scripted.run(*program) == 0  # it has no orders: it is forgotten
    scripted.shared.drop_records(scripted.key)
    scripted.shared.write_orders(scripted.key, "run")
    scripted.shared.revoke(scripted.key)
    assert scripted.run(*program) == 0
    assert not (tmp_path / "log").exists()
    scripted.shared.drop_records(scripted.key)
    scripted.shared.write_orders(scripted.key, "run")
    scripted.shared.write_lease(1)
    assert scripted.run(*program) == 0
    began = scripted.shared.read_records(scripted.key).begin
    assert began is not None
    assert began.kind == "unstarted"
    assert not (tmp_path / "log").exists()


def test_a_script_that_cannot_write_its_records_says_so(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    scripted.shared.write_orders(scripted.key, "run")
    scripted.shared.records.rmdir()
    assert scripted.run("/bin/true") == 75


# --- the league file ----------------------------------------------------------------------------------------


def test_the_league_file_says_how_to_reach_slurm() -> None:
    backend = {
        "kind": "slurm", "driver": "rest", "url": "http://login:6820", "token_file": "/etc/token",
        "shared_dir": "/shared", "partition": "batch", "poll": "2s", "time_limit": "1h", "array_max": 1,
    }  # fmt: skip
    data = {"brokers": [{"name": "b1"}], "clusters": [{"name": "north", "backend": backend}]}
    league = league_from_data(data)
    assert isinstance(league, LeagueConfig)
    settings = league.clusters[0].backend.settings
    assert isinstance(settings, SlurmSettings)
    assert (settings.driver, settings.poll, settings.time_limit) == ("rest", 2_000_000, 3_600_000_000)
    assert league.clusters[0].nodes == ()
    assert league_from_data(league_to_data(league)) == league


@pytest.mark.parametrize(
    ("backend", "word"),
    [
        ({"kind": "slurm", "driver": "ssh"}, "cli, rest"),
        ({"kind": "slurm", "driver": "rest"}, "slurmrestd"),
        ({"kind": "slurm", "shared_dir": "here"}, "absolute"),
        ({"kind": "slurm", "poll": "1ms"}, "100 ms"),
        ({"kind": "process", "partition": "x"}, "no field 'partition'"),
    ],
)
def test_mistakes_in_it_are_told(backend: dict[str, str], word: str) -> None:
    problems = league_from_data(
        {"brokers": [{"name": "b1"}], "clusters": [{"name": "north", "backend": backend, "nodes": [{}]}]}
    )
    assert not isinstance(problems, LeagueConfig)
    assert any(word in problem.rule for problem in problems), problems


def test_only_a_foreign_cluster_may_leave_its_nodes_out() -> None:
    problems = league_from_data({"brokers": [{"name": "b1"}], "clusters": [{"name": "north"}]})
    assert not isinstance(problems, LeagueConfig)


@pytest.mark.parametrize("state", ["", "CANCELLED"])
def test_what_a_controller_ends_when_it_comes_back_is_lost_and_not_the_tasks_fault(state: str) -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    attempt.saw_outage = True
    end = end_from_record(attempt, EndRecord(0, -15, 0, 0, 0, True), state)
    assert end is not None
    assert end.outcome is Outcome.LOST
    assert "controller came back" in end.note
    own = end_from_record(attempt, EndRecord(0, 7, 0, 0, 0, False), "")
    assert own is not None
    assert (own.outcome, own.exit_code) == (Outcome.FAILED, 7), "what it did by itself is its own"


@pytest.mark.parametrize(("later", "outcome"), [(1, Outcome.FAILED), (2, Outcome.LOST)])
def test_what_slurm_cancels_because_it_launched_it_twice_is_lost(later: int, outcome: Outcome) -> None:
    """The second launch is later than the start of what the first one launched; the clocks of two machines
    and Slurm's whole seconds may differ by more than one."""
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    attempt.begin_record = BeginRecord("ran", 4, 0, 1_700_000_000_100)
    attempt.launch_times = {4: 1_700_000_000 + later, 3: 1_800_000_000}
    end = end_from_record(attempt, EndRecord(0, -15, 0, 0, 0, True), "CANCELLED")
    assert end is not None
    assert end.outcome is outcome
    assert ("launched it again" in end.note) == (outcome is Outcome.LOST)
    own = end_from_record(attempt, EndRecord(0, 7, 0, 0, 0, False), "CANCELLED")
    assert own is not None
    assert (own.outcome, own.exit_code) == (Outcome.FAILED, 7), "what it did by itself is its own"
