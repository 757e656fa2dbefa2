"""Claims and grants on their way while a node drains, a lease runs out or a warden restarts."""

from msgspec import structs

from hanse.core.warden.warden import Warden
from hanse.model.events import DrainRequested
from hanse.model.ids import SECOND, task_id
from hanse.model.messages import (
    Claim,
    ClaimReply,
    ClusterDelta,
    ClusterSnapshot,
    Envelope,
    HeartbeatReply,
    RunnerHeartbeat,
    TaskUpdates,
    WardenHeartbeat,
)
from tests.core.crossings.harness import Crossings
from tests.core.wired import job, node, tasks


def one_cluster(nodes: int = 2, brokers: tuple[str, ...] = ("b1",)) -> Crossings:
    return Crossings(brokers, {"c1": tuple(node() for _ in range(nodes))})


def warden(league: Crossings) -> Warden:
    found = league.machines["c1"]
    assert isinstance(found, Warden)
    return found


def believed(league: Crossings, broker: str = "b1") -> object:
    return league.machines[broker].believed_free("c1")  # type: ignore[attr-defined]


# --- drains -----------------------------------------------------------------------------------------------


def test_a_claim_that_arrives_after_the_drain_starts_nothing_on_the_closed_node() -> None:
    league = one_cluster()
    claims = league.keep(Claim, "b1")
    number = league.submit(job(tasks(6)))
    league.drain("c1", 0)
    claims.arrives()
    league.run(2 * SECOND)
    assert {at for _, at in league.running(number).values()} == {1}
    assert len(league.running(number)) == 4
    league.drain("c1", 0, closed=False)
    league.run(5 * SECOND)
    assert len(league.running(number)) == 6
    league.rest()


def test_a_grant_that_is_bound_after_the_drain_starts_nothing_on_the_closed_node() -> None:
    league = one_cluster(1)
    running = league.submit(job(tasks(4)))
    waiting = league.submit(job(tasks(4)))
    claims = league.keep(Claim, "b1")
    for index in range(4):
        league.exit(task_id(running, index), 1)
    league.run(SECOND // 10)
    assert claims
    league.give("c1", DrainRequested(league.now, (0,), True))
    claims.arrives()
    league.run(5 * SECOND)
    assert league.running(waiting) == {}
    league.drain("c1", 0, closed=False)
    league.run(5 * SECOND)
    assert len(league.running(waiting)) == 4
    league.rest()


def test_a_grant_that_is_bound_after_its_runner_was_lost_waits_for_no_runner() -> None:
    """Room came free just before the runner counted as lost, and was granted. What is bound to it late must
    run elsewhere, and not wait for a runner that may never return."""
    league = Crossings(("b1",), {"c1": (node(runner="r1"), node(runner="r2"))})
    running = league.submit(job(tasks(8)))
    waiting = league.submit(job(tasks(2)))
    league.keep(RunnerHeartbeat, "c1.r1")
    league.run(9 * SECOND)
    claims = league.keep(Claim, "b1")
    while not league.marks("c1").get("warden.lost_runner"):
        league.run(SECOND // 10)
    assert claims
    league.dies("c1.r1")
    claims.arrives()
    for _ in range(3):
        league.run(2 * SECOND)
        league.end(running)
    assert {at for _, at in league.running(waiting).values()} <= {1}
    assert len(league.running(waiting)) == 2 or waiting in league.over
    league.end(waiting)
    league.run(2 * SECOND)
    assert waiting in league.over
    league.rest()


def test_what_runs_on_a_drained_node_goes_on_over_a_restart_and_nothing_joins_it() -> None:
    league = one_cluster(1)
    number = league.submit(job(tasks(2)))
    league.drain("c1", 0)
    league.dies("c1")
    league.returns("c1")
    more = league.submit(job(tasks(1)))
    league.run(5 * SECOND)
    assert len(league.running(number)) == 2
    assert not league.running(more)
    league.drain("c1", 0, closed=False)
    league.run(5 * SECOND)
    assert league.running(more)
    league.rest()


# --- grants -----------------------------------------------------------------------------------------------


def test_a_grant_bound_after_it_ran_out_does_not_take_room_twice() -> None:
    league = Crossings(("b1", "b2"), {"c1": (node(1_000),)})
    running = league.submit(job(tasks(1)), "b1")
    first = league.submit(job(tasks(1)), "b1")
    second = league.submit(job(tasks(1)), "b2")
    claims = league.keep(Claim, "b1")
    league.end(running)
    league.run(4 * SECOND)
    assert claims
    assert league.running(second)
    claims.arrives()
    league.run(2 * SECOND)
    assert not league.running(first)
    league.end(second)
    league.run(5 * SECOND)
    assert league.running(first)
    league.rest()


def test_an_offer_that_arrives_late_and_twice_is_used_once() -> None:
    league = Crossings(("b1",), {"c1": (node(2_000),)})
    running = league.submit(job(tasks(2)))
    waiting = league.submit(job(tasks(5)))
    offers = league.keep(TaskUpdates, "c1", "b1")
    league.end(running, 0)
    league.run(SECOND)
    offers.arrives(times=3)
    league.run(2 * SECOND)
    assert len(league.running(waiting)) == 1
    league.rest()


def test_a_grant_to_a_broker_that_died_goes_to_another() -> None:
    league = Crossings(("b1", "b2"), {"c1": (node(1_000),)})
    running = league.submit(job(tasks(1)), "b2")
    dead = league.submit(job(tasks(1)), "b1")
    alive = league.submit(job(tasks(1)), "b2")
    league.dies("b1")
    league.end(running)
    league.run(5 * SECOND)
    assert league.running(alive)
    league.rest()
    assert dead in league.over


def test_a_gang_whose_room_was_taken_while_its_claim_was_on_its_way_starts_not_at_all() -> None:
    league = Crossings(("b1", "b2"), {"c1": (node(),)})
    claims = league.keep(Claim, "b1")
    gang = league.submit(job(tasks(3), gang=True), "b1")
    assert claims
    other = league.submit(job(tasks(2)), "b2")
    claims.arrives()
    league.run(5 * SECOND)
    assert not any(league.attempts(gang, index) for index in range(3))
    league.end(other)
    league.run(5 * SECOND)
    assert len(league.running(gang)) == 3
    league.rest()


def test_no_broker_binds_room_that_was_granted_to_another() -> None:
    league = Crossings(("b1", "b2"), {"c1": (node(1_000),)})
    running = league.submit(job(tasks(1)), "b1")
    first = league.submit(job(tasks(1)), "b1")
    second = league.submit(job(tasks(1)), "b2")
    claims = league.keep(Claim)
    league.exit(task_id(running, 0), 1)
    league.run(SECOND // 10)
    bound = next(one.body for one in claims.envelopes if isinstance(one.body, Claim) and one.body.batches)
    (batch,) = bound.batches
    assert batch.lease
    stolen = structs.replace(batch, job=second, template=structs.replace(batch.template, shard="b2#1"))
    link = league.machines["c1"]._links.links["b2"]  # type: ignore[attr-defined]
    body = structs.replace(bound, batches=(stolen,), rounds=(("b2#1", 1),), acked_ends=())
    claims.is_lost()
    league.hand_over(Envelope("b2", "c1", 0, link.received + 1, link.sent, body))
    assert league.running(second) == {}
    league.run(5 * SECOND)
    assert league.running(first)


# --- epochs, views and rounds -----------------------------------------------------------------------------


def test_a_change_of_an_earlier_life_of_the_warden_does_not_spoil_the_view() -> None:
    league = one_cluster()
    changes = league.keep(ClusterDelta, "c1")
    number = league.submit(job(tasks(3)))
    league.end(number, 0)
    league.run(SECOND)
    league.dies("c1")
    league.returns("c1")
    league.run(3 * SECOND)
    changes.arrives(times=2, backwards=True)
    league.run(3 * SECOND)
    assert believed(league) == warden(league).advertised_free()
    league.rest()


def test_changes_that_arrive_out_of_order_do_not_spoil_the_view() -> None:
    league = one_cluster(3)
    number = league.submit(job(tasks(9)))
    changes = league.keep(ClusterDelta, "c1")
    for index in range(4):
        league.end(number, index)
    changes.arrives(times=2, backwards=True)
    league.run(3 * SECOND)
    assert believed(league) == warden(league).advertised_free()
    league.rest()


def test_an_old_snapshot_does_not_undo_later_changes() -> None:
    league = one_cluster()
    snapshots = league.keep(ClusterSnapshot, "c1")
    league.dies("b1")
    league.returns("b1")
    league.run(2 * SECOND)
    old = list(snapshots.envelopes)
    snapshots.is_lost()
    league.run(3 * SECOND)
    number = league.submit(job(tasks(5)))
    for envelope in old:
        league.hand_over(envelope)
    league.run(3 * SECOND)
    assert believed(league) == warden(league).advertised_free()
    assert len(league.running(number)) == 5
    league.rest()


def test_a_claim_that_crosses_the_wardens_restart_is_taken_once() -> None:
    league = one_cluster()
    answers = league.keep(ClaimReply, "c1")
    number = league.submit(job(tasks(2)))
    league.dies("c1", unsaid=True)
    league.returns("c1")
    answers.arrives(times=2)
    league.repeat(Claim, "b1", "c1")
    league.run(5 * SECOND)
    assert league.attempts(number, 0) == league.attempts(number, 1) == [1]
    league.rest()


def test_an_answer_to_a_beat_of_an_earlier_round_does_not_begin_a_new_one() -> None:
    """The estate's lease has lapsed. A reply to a beat from before must not open the new round: its sender
    has not been told of it, and may have given the attempts up."""
    league = one_cluster(1)
    number = league.submit(job(tasks(1)))
    replies = league.keep(HeartbeatReply | Claim, "b1")
    beats = league.keep(WardenHeartbeat, "c1", "b1")
    league.run(31 * SECOND)
    assert not league.live
    claim_of_old_round = league.attempts(number)
    replies.arrives(backwards=True)
    league.run(SECOND)
    assert league.attempts(number) == claim_of_old_round
    beats.is_lost()
    league.run(10 * SECOND)
    assert len(league.attempts(number)) == 2
    league.rest()


def test_a_lease_counts_from_when_the_beat_was_sent_and_not_from_when_its_answer_came() -> None:
    league = one_cluster(1)
    league.submit(job(tasks(1)))
    replies = league.keep(HeartbeatReply, "b1")
    league.run(20 * SECOND)
    league.keep(WardenHeartbeat, "c1", "b1")
    newest = replies.envelopes[-1]
    replies.is_lost()
    league.hand_over(newest)
    again = league.keep(HeartbeatReply, "b1")
    league.run(28 * SECOND)
    assert league.live
    league.run(4 * SECOND)
    assert not league.live
    again.is_lost()
    league.rest()
