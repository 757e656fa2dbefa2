"""Why a job waits, runs where it does, or ended so: the very words."""

from datetime import timedelta, timezone

import msgspec
import pytest

from hanse.api.row_records import DecisionRow, GroupDetail, JobDetail, JobRow
from hanse.live.readmodel.cluster_facts import (
    FitStatus,
    ObservedCluster,
    ObservedNode,
    assess_fit,
    join_words,
    size_text,
)
from hanse.live.readmodel.explanation import EndCount, TaskSummary, code_text, explain
from hanse.model.constraints import Is
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import SECOND
from hanse.model.job import Affinity, JobClass, JobSpec, TaskGroup
from hanse.model.resources import Resources

GIB = 1 << 30
TWO = 1_700_000_000 * SECOND - (1_700_000_000 % 86_400) * SECOND + (14 * 3_600 + 2 * 60 + 11) * SECOND
"""14:02:11 of a day."""
ASK = Resources(cpu=4_000, memory=8 * GIB)


def one_node(cpu: int, free: int, **rest: object) -> ObservedNode:
    return ObservedNode(
        Resources(cpu=cpu, memory=64 * GIB),
        Resources(cpu=free, memory=64 * GIB),
        **rest,  # type: ignore[arg-type]
    )


NORTH = ObservedCluster("north", (one_node(8_000, 2_000), one_node(8_000, 1_000)), seen=0.1)
SOUTH = ObservedCluster("south", (one_node(8_000, 8_000),), draining=True, seen=0.2)


def detail_of(spec: JobSpec, *states: dict[str, int], **rest: object) -> JobDetail:
    """A job with these states of its groups."""
    total = {
        name: sum(part.get(name, 0) for part in states)
        for name in ("blocked", "queued", "placed", "running", "succeeded", "failed", "cancelled")
    }
    state = next((name for name in ("running", "placed", "queued", "blocked") if total[name]), "succeeded")
    row = JobRow(
        id="1-0", name="x", tenant="t", state=state, total=spec.task_count,
        waiting=total["blocked"] + total["queued"] + total["placed"], running=total["running"],
        succeeded=total["succeeded"], failed=total["failed"], cancelled=total["cancelled"], submitted=TWO,
        started=None, ended=None, priority=0, klass="batch", clusters=(), cancel_reason="", owner="b1",
        client_id="", cursor="",
    )  # fmt: skip
    row = msgspec.structs.replace(row, **{k: v for k, v in rest.items() if k in JobRow.__struct_fields__})
    groups = tuple(
        GroupDetail(
            name=group.name, count=group.count, ask=group.ask, ask_max=None, where="", needs=group.needs,
            duration=None, command=(), states=part,
        )
        for group, part in zip(spec.groups, states, strict=True)
    )  # fmt: skip
    others = {key: value for key, value in rest.items() if key not in JobRow.__struct_fields__}
    return JobDetail(row=row, spec=spec, groups=groups, **others)  # type: ignore[arg-type]


def said(answered: DecisionKind, reason: str, at: int | None = TWO, group: str = "main") -> DecisionRow:
    return DecisionRow(
        at=at, broker="b1", group=group, answered=answered, tasks=1, reason=reason, considered=()
    )


WAITING = said(DecisionKind.WAITING, "no room in any cluster's view")


# --- waiting -----------------------------------------------------------------------------------------------


def test_some_run_and_some_wait_because_every_cluster_is_full_or_closed() -> None:
    spec = JobSpec((TaskGroup(count=10, ask=ASK),))
    detail = detail_of(spec, {"running": 3, "queued": 7})
    summary = TaskSummary(running=(("main", "north", 2), ("main", "south", 1)))
    assert explain(detail, summary, [WAITING], (NORTH, SOUTH)) == [
        (
            "3 of 10 tasks run in north (2) and south (1); 7 wait since 14:02:11 because no cluster has"
            " 4 CPUs and 8 GiB free on one node: the best node of north has 2 CPUs free,"
            " south is drained and takes no new work."
        ),
        "Something can start when a node of north has 2 CPUs more free or when south is opened again.",
    ]


def test_one_task_is_spoken_of_as_one() -> None:
    spec = JobSpec((TaskGroup(ask=ASK),))
    assert explain(detail_of(spec, {"queued": 1}), TaskSummary(), [WAITING], (NORTH,))[0] == (
        "The task waits since 14:02:11 because no cluster has 4 CPUs and 8 GiB free on one node:"
        " the best node of north has 2 CPUs free."
    )
    running = TaskSummary(running=(("main", "north", 1),))
    assert explain(detail_of(spec, {"running": 1}), running, [], ()) == ["The task runs in north."]


def test_what_has_room_now_is_not_given_as_a_reason_to_wait() -> None:
    spec = JobSpec((TaskGroup(count=2, ask=Resources(cpu=1_000)),))
    sentences = explain(detail_of(spec, {"queued": 2}), TaskSummary(), [WAITING], (NORTH,))
    assert sentences == [
        (
            "All 2 tasks wait since 14:02:11; latest reason: no room in any cluster's view. By the latest"
            " data there is room in north for 3."
        )
    ]


def test_without_facts_only_the_recorded_word_is_repeated() -> None:
    spec = JobSpec((TaskGroup(),))
    assert explain(detail_of(spec, {"queued": 1}), TaskSummary(), [WAITING], ()) == [
        "The task waits since 14:02:11; latest reason: no room in any cluster's view."
    ]
    assert explain(detail_of(spec, {"queued": 1}), TaskSummary(), [], ()) == ["The task waits."]


def test_what_never_fits_says_what_the_user_can_do() -> None:
    spec = JobSpec(
        (TaskGroup(ask=Resources(cpu=16_000), where=Is("zone", "a")),), clusters_forbidden=("south",)
    )
    west = ObservedCluster("west", (one_node(8_000, 8_000, attributes=(("zone", "a"),)),))
    sentences = explain(detail_of(spec, {"queued": 1}), TaskSummary(), [WAITING], (NORTH, SOUTH, west))
    assert sentences == [
        (
            "The task waits since 14:02:11, and no cluster can ever run this: no node of north"
            ' satisfies zone == "a" (none has the attribute zone), the job does not allow south,'
            " west's largest suitable node has 8 CPUs."
        ),
        (
            "To let it run, allow another cluster or loosen its condition or ask for less than 16 CPUs and"
            " submit it again, or add nodes."
        ),
    ]


@pytest.mark.parametrize(
    ("spec", "cluster", "standing", "text"),
    [
        (JobSpec((TaskGroup(),)), ObservedCluster("c", ()), FitStatus.UNKNOWN, "c has not reported yet"),
        (
            JobSpec((TaskGroup(),)),
            msgspec.structs.replace(NORTH, reachable=False, seen=42.0),
            FitStatus.UNREACHABLE,
            "north has not answered for 42 s",
        ),
        (
            JobSpec((TaskGroup(),)),
            msgspec.structs.replace(NORTH, fenced=True),
            FitStatus.FENCED,
            "north does not take this broker's claims for now",
        ),
        (
            JobSpec((TaskGroup(),)),
            ObservedCluster(
                "c", (one_node(8_000, 0), one_node(500, 500), one_node(8_000, 8_000, draining=True))
            ),
            FitStatus.FULL,
            "the best node of c has 0 CPUs free (1 more is drained)",
        ),
        (
            JobSpec((TaskGroup(),)),
            ObservedCluster("c", (one_node(8_000, 8_000, draining=True), one_node(500, 500))),
            FitStatus.DRAINING,
            "the nodes of c that suit it are drained",
        ),
        (
            JobSpec((TaskGroup(),)),
            ObservedCluster("c", (one_node(8_000, 8_000, reserved=True),)),
            FitStatus.TOO_SMALL,
            "c has suitable nodes only in its reserve, which is kept for latency work",
        ),
        (
            JobSpec((TaskGroup(),), klass=JobClass.LATENCY),
            ObservedCluster("c", (one_node(8_000, 8_000, reserved=True),)),
            FitStatus.ROOM,
            "c has room for 8",
        ),
        (
            JobSpec((TaskGroup(count=4),), gang=True),
            NORTH,
            FitStatus.FULL,
            "north has room for 3 of the 4 that must start together",
        ),
        (
            JobSpec((TaskGroup(count=17),), gang=True),
            NORTH,
            FitStatus.TOO_SMALL,
            "north could hold 16 of the 17 that must start together",
        ),
        (
            JobSpec((TaskGroup(affinity=(Affinity("x", apart=True),)),), labels=("x",)),
            NORTH,
            FitStatus.ROOM,
            "north has room for 2",
        ),
        (
            JobSpec((TaskGroup(ask=Resources(cpu=500, memory=32 * GIB)),)),
            NORTH,
            FitStatus.ROOM,
            "north has room for 4",
        ),
        (
            JobSpec((TaskGroup(where=Is("zone", "b")),)),
            ObservedCluster("c", (one_node(1_000, 1_000, attributes=(("zone", "a"),)),)),
            FitStatus.UNSUITABLE,
            'no node of c satisfies zone == "b"',
        ),
        (
            JobSpec((TaskGroup(ask=Resources(gpu=1, custom=(("fpga", 2),))),)),
            ObservedCluster("c", (ObservedNode(Resources(gpu=8), Resources(gpu=8)),)),
            FitStatus.TOO_SMALL,
            "c's largest suitable node has 0 fpga",
        ),
    ],
)
def test_how_a_group_stands_to_a_cluster(
    spec: JobSpec, cluster: ObservedCluster, standing: FitStatus, text: str
) -> None:
    verdict = assess_fit(spec, 0, cluster)
    assert (verdict.status, verdict.text) == (standing, text)


# --- dependencies, troubles, ends --------------------------------------------------------------------------


def test_dependencies_are_named_with_their_states() -> None:
    spec = JobSpec((TaskGroup("map", 3), TaskGroup("reduce", needs=("map",))))
    detail = detail_of(spec, {"succeeded": 1, "running": 2}, {"blocked": 1})
    summary = TaskSummary(running=(("map", "north", 2),))
    assert explain(detail, summary, [], (NORTH,)) == [
        "Group map: 2 of 3 tasks run in north; 1 has succeeded.",
        "Group reduce: The task is blocked: it waits for group map (1 succeeded, 2 running).",
    ]
    after = detail_of(JobSpec((TaskGroup(),)), {"blocked": 1}, after=(("1-3", "running"), ("2-4", "")))
    assert explain(after, TaskSummary(), [], (NORTH,)) == [
        "The task is blocked: it waits for job 1-3 (running) and job 2-4 (unknown to this broker)."
    ]


def test_attempts_that_did_not_last_are_told() -> None:
    spec = JobSpec((TaskGroup(count=3, ask=ASK),), retries=2, deadline=3_600 * SECOND, preemptible=True)
    summary = TaskSummary(
        ends=(
            EndCount("main", "queued", "preempted", -15, "", "north", 2),
            EndCount("main", "queued", "failed", 1, "", "south", 1),
        )
    )
    decisions = [
        said(DecisionKind.MOVED, "preempted"),
        said(DecisionKind.RETRIED, "exit code 1"),
        said(DecisionKind.WAITING, "no room in any cluster's view", TWO + 60 * SECOND),
    ]
    sentences = explain(detail_of(spec, {"queued": 3}), summary, decisions, ())
    assert sentences[0].startswith("All 3 tasks wait since 14:03:11")
    assert sentences[1:] == [
        "2 tasks must start again: the latest attempt in north was stopped for more urgent work.",
        "1 task must start again: the latest attempt in south failed with exit code 1.",
        "Moved, last at 14:02:11: preempted.",
        "Started again after exit code 1, last at 14:02:11; 2 retries are allowed for each task.",
        "Its deadline is 15:02:11; unfinished tasks are then cancelled.",
    ]


def test_waiting_counts_from_the_first_of_equal_words() -> None:
    spec = JobSpec((TaskGroup(count=2),))
    decisions = [
        said(DecisionKind.WAITING, "no room"),
        said(DecisionKind.PLACED, "room", TWO + SECOND),
        said(DecisionKind.WAITING, "no room", TWO + SECOND),
    ]
    sentences = explain(detail_of(spec, {"queued": 1, "running": 1}), TaskSummary(), decisions, ())
    assert "1 waits since 14:02:11" in sentences[0]


def test_a_failed_job_names_codes_places_and_notes() -> None:
    spec = JobSpec((TaskGroup(count=10),))
    detail = detail_of(
        spec, {"succeeded": 7, "failed": 2, "cancelled": 1}, state="failed", clusters=("north",), ended=TWO
    )
    summary = TaskSummary(
        ends=(
            EndCount("main", "failed", "failed", 137, "out of memory", "north", 1),
            EndCount("main", "failed", "lost", 0, "", "north", 1),
        )
    )
    assert explain(detail, summary, [], (NORTH,)) == [
        "It failed at 14:02:11: 2 of 10 tasks failed. Its tasks ran in north.",
        "1 task was cancelled because of that.",
        "7 tasks succeeded.",
        (
            "1 task failed in north: exit code 137, which usually means: killed by SIGKILL; note of the"
            " backend: out of memory."
        ),
        "1 task failed in north: its attempts were lost too often, not by their own fault.",
    ]


def test_success_and_cancellation() -> None:
    spec = JobSpec((TaskGroup(count=2),))
    done = detail_of(spec, {"succeeded": 2}, state="succeeded", clusters=("north", "south"), ended=TWO)
    assert explain(done, TaskSummary(), [], ()) == [
        "All 2 tasks succeeded at 14:02:11. Its tasks ran in north and south."
    ]
    gone = detail_of(spec, {"cancelled": 2}, state="cancelled", cancel_reason="its deadline has passed")
    assert explain(gone, TaskSummary(), [], ()) == [
        "It was cancelled: its deadline has passed. None of its tasks ran."
    ]
    going = detail_of(spec, {"running": 2}, cancel_reason="asked for by me")
    assert explain(going, TaskSummary(running=(("main", "north", 2),)), [], ()) == [
        "All 2 tasks run in north.",
        "It is being cancelled: asked for by me. Running tasks get time to save their work.",
    ]


def test_a_copy_sends_the_asker_to_the_owner() -> None:
    detail = detail_of(JobSpec((TaskGroup(count=3),)), {"queued": 2, "succeeded": 1}, owner="west", copy=True)
    assert explain(detail, TaskSummary(), [], (NORTH,)) == [
        (
            "west owns this job; this broker has only a copy, in which 1 of 3 tasks has ended. Ask west for"
            " the other tasks."
        )
    ]


def test_times_of_another_day_have_a_date_and_a_zone_is_kept() -> None:
    spec = JobSpec((TaskGroup(),))
    detail = detail_of(spec, {"queued": 1})
    later = explain(detail, TaskSummary(), [WAITING], (), now=TWO + 86_400 * SECOND)
    assert "since 2023-11-14 14:02:11" in later[0]
    east = timezone(timedelta(hours=2))
    assert "since 16:02:11" in explain(detail, TaskSummary(), [WAITING], (), now=TWO, zone=east)[0]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "no exit code"),
        (0, "exit code 0"),
        (1, "exit code 1"),
        (126, "exit code 126, which usually means: the program cannot be executed"),
        (127, "exit code 127, which usually means: there is no such program"),
        (137, "exit code 137, which usually means: killed by SIGKILL"),
        (139, "exit code 139, which usually means: killed by SIGSEGV"),
        (255, "exit code 255"),
        (-9, "killed by SIGKILL"),
        (-40, "killed by signal 40"),
    ],
)
def test_exit_codes_have_meanings(code: int | None, text: str) -> None:
    assert code_text(code) == text


def test_amounts_as_people_say_them() -> None:
    assert size_text(Resources(cpu=1_000)) == "1 CPU"
    assert size_text(Resources(cpu=1_500, memory=3 * GIB // 2, gpu=1)) == "1.5 CPUs, 1.5 GiB and 1 GPU"
    assert size_text(Resources(cpu=1_999, memory=GIB - 1)) == "1.99 CPUs and 1023.99 MiB"
    assert size_text(Resources(custom=(("fpga", 2),))) == "2 fpga"
    assert size_text(Resources()) == "nothing"
    assert join_words([]) == ""
