"""What a warden tells of its room, and when it says nothing; room that is not for the league."""

import msgspec

from hanse.core.config import Timings
from hanse.model.events import CapacityWithheld, MessageReceived
from hanse.model.ids import MILLISECOND, SECOND, task_id
from hanse.model.messages import (
    AckEnds,
    AttemptEnd,
    Claim,
    ClusterDelta,
    Demand,
    Envelope,
    Outcome,
    RunnerOrders,
    RunnerReport,
    TaskUpdates,
)
from hanse.model.resources import Resources, Vector
from tests.core.wired import Wired, job, node, tasks

QUIET = Timings(beat=1_000 * SECOND, runner_beat=4 * SECOND)
"""Beats so rare that nothing but the warden's own word brings a view up to date."""


def seen(league: Wired, broker: str, cluster: str = "c1") -> list[Vector] | None:
    """What a broker believes to be free."""
    return league.machines[broker].believed_free(cluster)  # type: ignore[attr-defined, no-any-return]


def withhold(league: Wired, at: int, cpu: int, runner: str = "c1.r1") -> None:
    """Others take so much of a node."""
    league.give(runner, CapacityWithheld(league.now, ((at, Resources(cpu=cpu)),)))
    league.deliver()


def quiet(brokers: tuple[str, ...], *nodes: int) -> Wired:
    league = Wired({"c1": tuple(node(cpu) for cpu in nodes)}, brokers, QUIET)
    league.run(2 * QUIET.beat)  # the second beat opens every estate
    return league


def test_all_brokers_hear_of_a_claim_that_was_answered_with_a_delta() -> None:
    league = quiet(("b1", "b2"), 1_000, 1_000)
    league.submit(job(tasks(1)), "b1")
    league.run(SECOND)
    assert seen(league, "b1") == seen(league, "b2")
    assert sum(free[0] for free in seen(league, "b2") or ()) == 1_000


def test_room_that_is_granted_the_moment_it_frees_is_no_news() -> None:
    league = quiet(("b1", "b2"), 1_000)
    first = league.submit(job(tasks(1)), "b1")
    second = league.submit(job(tasks(1)), "b2")
    league.run(SECOND)
    before = len(league.said)
    league.end(first)
    league.run(SECOND)
    assert league.running(second) == {0: ("c1", 0)}
    assert league.bodies(ClusterDelta, before) == []
    assert seen(league, "b1") == seen(league, "b2") == [(0, 0, 0)]


def test_a_grant_comes_with_the_news_and_what_is_settled_goes_with_the_claim() -> None:
    league = quiet(("b1",), 1_000)
    first = league.submit(job(tasks(1)))
    league.submit(job(tasks(1)))
    before = len(league.said)
    league.end(first)
    (news,) = [body for body in league.bodies(TaskUpdates, before) if body.ended]
    (claim,) = league.bodies(Claim, before)
    assert news.offers
    assert [end.task for end in news.ended] == [task for task, _ in claim.acked_ends]
    assert league.bodies(AckEnds, before) == []


def test_ends_are_settled_and_forgotten_when_nothing_carries_the_word() -> None:
    league = quiet(("b1",), 1_000)
    number = league.submit(job(tasks(1)))
    before = len(league.said)
    league.exit(task_id(number, 0), 1)
    league.deliver()
    assert league.bodies(AckEnds, before) == []
    assert not any(orders.forget for orders in league.bodies(RunnerOrders, before))
    league.run(QUIET.settle_linger + MILLISECOND)
    assert len(league.bodies(AckEnds, before)) == 1
    assert [len(orders.forget) for orders in league.bodies(RunnerOrders, before)] == [1]
    league.run(2 * QUIET.resend_after)
    league.check_idle()


# --- room that others use ----------------------------------------------------------------------------------


def test_withheld_room_is_neither_offered_nor_used() -> None:
    league = quiet(("b1",), 4_000)
    withhold(league, 0, 3_000)
    league.run(SECOND)
    assert seen(league, "b1") == [(1_000, 0, 0)]
    number = league.submit(job(tasks(2)))
    league.run(SECOND)
    assert list(league.running(number)) == [0]
    withhold(league, 0, 0)
    assert list(league.running(number)) == [0, 1]


def test_what_runs_goes_on_and_its_room_is_withheld_as_it_ends() -> None:
    league = quiet(("b1",), 2_000)
    number = league.submit(job(tasks(3)))
    withhold(league, 0, 2_000)
    assert sorted(league.running(number)) == [0, 1]
    league.end(number, 0)
    league.run(SECOND)
    assert sorted(league.running(number)) == [1]
    league.end(number, 1)
    league.run(SECOND)
    assert league.running(number) == {}
    withhold(league, 0, 500)
    assert sorted(league.running(number)) == [2]


def test_a_restarted_warden_and_a_restarted_runner_know_what_is_withheld() -> None:
    league = Wired({"c1": (node(4_000),)}, ("b1",))
    withhold(league, 0, 3_000)
    league.restart("c1")
    league.run(5 * SECOND)
    assert seen(league, "b1") == [(1_000, 0, 0)]
    league.restart("c1.r1")  # its backend has nothing to withhold any more
    league.run(5 * SECOND)
    assert seen(league, "b1") == [(4_000, 0, 0)]


def test_a_runner_speaks_for_its_own_nodes_only() -> None:
    league = Wired({"c1": (node(4_000), node(4_000, runner="r2"))}, ("b1",))
    withhold(league, 0, 3_000, runner="c1.r2")
    league.run(SECOND)
    assert seen(league, "b1") == [(4_000, 0, 0)] * 2


def test_a_grant_that_crosses_a_claim_is_used_when_the_claim_is_refused_for_its_sake() -> None:
    """Else broker and warden could go on for ever: claim and demand cross, the demand gets the room, the
    claim is refused, the grant finds nothing that waits and is given back, and all begins anew."""
    league = Wired({"c1": (node(1_000),)}, ("b1",), msgspec.structs.replace(QUIET, grant_lease=10 * SECOND))
    league.run(2 * QUIET.beat)
    withhold(league, 0, 1_000)
    league.run(SECOND)
    league.hand_in(job(tasks(1)))  # no room in view: demand goes out
    (demand,) = league.mail
    league.mail.clear()
    withhold(league, 0, 0)
    league.loses = lambda envelope: isinstance(envelope.body, Claim | Demand)
    league.run(200 * MILLISECOND)  # the room is seen and claimed, and the claim is lost for now
    league.loses = lambda envelope: isinstance(envelope.body, Claim)
    league.hand_over(demand)
    league.deliver()
    assert league.marks("b1")["broker.spared_grant"] == 1
    assert league.live == {}
    league.loses = lambda _: False
    league.run(3 * SECOND)
    assert len(league.live) == 1
    assert league.marks("b1")["broker.refused_no_room"] == 1
    assert "broker.released_grant" not in league.marks("b1")


def test_a_runner_tells_of_the_ends_on_its_own_nodes_only() -> None:
    league = Wired({"c1": (node(1_000), node(1_000, runner="r2"))}, ("b1",))
    number = league.submit(job(tasks(2)))
    (index,) = [index for index, (_, at) in league.running(number).items() if at == 0]
    attempt = next(attempt for task, attempt in league.live if task == task_id(number, index))
    stranger = league.machines["c1.r2"]
    link = stranger._links.link("c1")  # type: ignore[attr-defined]
    report = RunnerReport((), (AttemptEnd(task_id(number, index), attempt, Outcome.SUCCEEDED),))
    envelope = Envelope("c1.r2", "c1", link.session, link.sent + 1, link.received, report)
    league.give("c1", MessageReceived(league.now, envelope))
    league.run(SECOND)
    assert league.marks("c1")["warden.end_of_unknown_attempt"] == 1
    assert league.settled == {}
    assert index in league.running(number)


def demands_told(*ended: int, newcomer: int = 0) -> int:
    """Messages with nothing but demand that two wardens get when so many tasks of the job at the head of a
    line have ended, or a job of so many tasks comes. The smallest job is served first."""
    two = (node(1_000), node(1_000))
    league = Wired({"c1": two, "c2": two}, ("b1",), QUIET, order="fewest-remaining")
    league.run(2 * QUIET.beat)
    head = league.submit(job(tasks(8)))
    league.submit(job(tasks(1, cpu=900)))  # it wants what comes free, so that the head's own count stays
    before = len(league.said)
    for index in ended:
        league.end(head, index)
    if newcomer:
        league.submit(job(tasks(newcomer)))
    return len(league.bodies(Demand, before))


def test_progress_of_the_job_at_the_head_is_not_told_to_everybody_but_a_better_job_is() -> None:
    assert demands_told(newcomer=9) == 0
    assert demands_told(newcomer=2) == 2
    assert demands_told(0) == 0
