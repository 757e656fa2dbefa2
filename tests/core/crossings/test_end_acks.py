"""When a warden may forget an end: never before somebody who will go on with the job has it safe."""

from hanse.core.broker.end_acks import ACKS_PER_MESSAGE_MAX, EndAcks
from hanse.core.config import Timings
from hanse.core.messaging.link import WINDOW_MAX, LinkSet
from hanse.model.effects import Effect, SendMessage
from hanse.model.ids import SECOND, TaskId
from hanse.model.messages import (
    AckEnds,
    Claim,
    Outcome,
    OwnershipReply,
    ReplicaUpdate,
    RequestTakeover,
    TaskUpdates,
)
from tests.core.crossings.harness import Crossings
from tests.core.wired import job, tasks

LINGER = Timings().settle_linger


def settled(league: Crossings, source: str = "") -> list[tuple[str, int]]:
    """Who was told that it may forget which tasks, with claims or otherwise."""
    found: list[tuple[str, int]] = []
    for sender, target, body in league.said:
        if source in ("", sender):
            if isinstance(body, AckEnds):
                found += [(target, task) for task in body.tasks]
            elif isinstance(body, Claim):
                found += [(target, task) for task, _ in body.acked_ends]
    return found


# --- crossings --------------------------------------------------------------------------------------------


def test_an_end_that_is_told_again_is_not_forgotten_before_the_heir_has_it() -> None:
    """b1 has told b2 of an end, which is on its way. b2 bids for b1's jobs and gives up, so the warden tells
    b1 of the end again. Then b1 dies: if the warden has forgotten the end, b2 runs the task once more."""
    league = Crossings()
    number = league.submit(job(tasks(2)), "b1")
    home = league.running(number)[0][0]
    unheard = league.keep(source="b1", target="b2")
    half = league.keep(RequestTakeover, "b2", "c2" if home == "c1" else "c1")
    league.run(4 * SECOND)
    league.end(number, 0)
    league.run(4 * SECOND)
    assert half
    unheard.envelopes = [one for one in unheard.envelopes if not isinstance(one.body, ReplicaUpdate)]
    told = league.keep(ReplicaUpdate, "b1", "b2")
    half.is_lost()
    unheard.arrives()
    league.run(2 * SECOND)
    assert league.marks("b1").get("broker.end_of_old_attempt")
    assert settled(league) == []
    league.dies("b1")
    told.is_lost()
    league.run(20 * SECOND)
    assert league.owners(number) == ["b2"]
    league.rest()
    assert league.attempts(number, 0) == [1]


def test_an_end_that_comes_after_a_bid_was_given_up_is_left_to_the_owner() -> None:
    """The warden told b2 of the end when it took b2 for the owner. b2 was down, came back, gave its bid up,
    and hears of it then: nobody else knows of it yet."""
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    home = league.running(number)[0][0]
    answer = league.keep(OwnershipReply, "c2" if home == "c1" else "c1", "b2")
    league.dies("b1")
    league.run(10 * SECOND)
    league.dies("b2")
    league.end(number)
    league.run(10 * SECOND)
    league.returns("b2")
    league.run(4 * SECOND)
    assert league.marks("b2")["broker.end_for_peer"] == 1
    assert settled(league) == []
    answer.is_lost()
    league.run(20 * SECOND)
    assert league.over[number] is Outcome.SUCCEEDED
    league.rest()
    assert league.attempts(number) == [1]


def test_the_end_of_a_job_long_over_is_forgotten_at_once() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    news = league.keep(TaskUpdates, target="b1")
    league.end(number)
    league.run(4 * SECOND)
    news.arrives(times=2)
    league.run(4 * SECOND)
    assert [task >> 20 for _, task in settled(league)] == [number]
    league.rest()


def test_a_warden_that_was_told_to_forget_and_restarts_has_forgotten() -> None:
    league = Crossings()
    number = league.submit(job(tasks(1)), "b1")
    home = league.running(number)[0][0]
    word = league.keep(AckEnds, "b1", home)
    league.end(number)
    league.run(2 * SECOND)
    assert word
    assert league.machines[home].find_leftovers()  # type: ignore[attr-defined]
    league.dies(home)
    league.returns(home)
    word.arrives(times=2)
    league.dies(home)
    league.returns(home)
    league.run(5 * SECOND)
    assert league.machines[home].find_leftovers() == []  # type: ignore[attr-defined]
    league.rest()


def test_what_is_to_be_forgotten_goes_with_the_next_claim_and_is_not_said_twice() -> None:
    league = Crossings(("b1",))
    number = league.submit(job(tasks(2)), "b1")
    league.end(number, 0)
    league.end(number, 1)
    league.submit(job(tasks(1)), "b1")
    league.run(5 * SECOND)
    told = settled(league)
    assert len(told) == len(dict.fromkeys(told)) == 2
    league.rest()


def test_ends_wait_for_a_broker_that_is_away_and_are_told_when_it_returns() -> None:
    league = Crossings(("b1",))
    number = league.submit(job(tasks(3)), "b1")
    league.dies("b1")
    league.end(number, 0)
    league.end(number, 1, outcome=Outcome.FAILED)
    league.run(10 * SECOND)
    league.returns("b1")
    league.run(10 * SECOND)
    assert league.outcome(number, 0) is Outcome.SUCCEEDED
    assert league.outcome(number, 1) is Outcome.FAILED
    league.rest()


# --- the list of what may be forgotten --------------------------------------------------------------------


def sent(out: list[Effect]) -> list[tuple[str, tuple[TaskId, ...]]]:
    return [
        (one.envelope.target, one.envelope.body.tasks)
        for one in out
        if isinstance(one, SendMessage) and isinstance(one.envelope.body, AckEnds)
    ]


def entries(count: int, first: int = 0) -> list[tuple[TaskId, int]]:
    return [(TaskId(first + at), 1) for at in range(count)]


def test_all_that_was_added_is_told_after_the_linger_and_once() -> None:
    settling = EndAcks(LinkSet("b1", Timings()), LINGER)
    settling.add(0, "c1", entries(2))
    settling.add(LINGER // 2, "c1", entries(2, 2))
    settling.add(LINGER // 2, "c2", entries(1, 9))
    assert settling.state.due == LINGER
    out: list[Effect] = []
    settling.tick(out, LINGER)
    assert sent(out) == [("c1", (0, 1, 2, 3)), ("c2", (9,))]
    settling.tick(out, 2 * LINGER)
    assert len(sent(out)) == 2


def test_a_claim_takes_at_most_so_many_and_the_rest_is_still_told() -> None:
    settling = EndAcks(LinkSet("b1", Timings()), LINGER)
    settling.add(0, "c1", entries(ACKS_PER_MESSAGE_MAX + 3))
    carried = settling.take("c1")
    assert len(carried) == ACKS_PER_MESSAGE_MAX
    assert settling.state.due == LINGER
    out: list[Effect] = []
    settling.tick(out, LINGER)
    ((_, rest),) = sent(out)
    assert [task for task, _ in carried] + list(rest) == list(range(ACKS_PER_MESSAGE_MAX + 3))
    assert settling.take("c1") == ()


def test_more_than_one_message_holds_goes_in_several() -> None:
    settling = EndAcks(LinkSet("b1", Timings()), LINGER)
    settling.add(0, "c1", entries(2 * ACKS_PER_MESSAGE_MAX + 1))
    out: list[Effect] = []
    settling.tick(out, LINGER)
    assert [len(tasks) for _, tasks in sent(out)] == [ACKS_PER_MESSAGE_MAX, ACKS_PER_MESSAGE_MAX, 1]


def test_a_warden_far_behind_is_told_later_and_nothing_is_dropped() -> None:
    post = LinkSet("b1", Timings())
    settling = EndAcks(post, LINGER)
    for _ in range(WINDOW_MAX // 2 + 1):
        post.send([], 0, "c1", AckEnds((TaskId(0),), (1,)))
    settling.add(0, "c1", entries(3))
    settling.add(0, "c2", entries(1))
    out: list[Effect] = []
    settling.tick(out, LINGER)
    assert sent(out) == [("c2", (0,))]
    assert settling.state.due == 2 * LINGER
    post.reopen("c1", 0)
    settling.tick(out, 2 * LINGER)
    assert sent(out)[1:] == [("c1", (0, 1, 2))]


def test_one_warden_taken_care_of_leaves_the_other_due() -> None:
    settling = EndAcks(LinkSet("b1", Timings()), LINGER)
    settling.add(0, "c1", entries(1))
    settling.add(0, "c2", entries(1))
    settling.take("c1")
    assert settling.state.due == LINGER
    settling.take("c2")
    assert settling.state.due > LINGER
