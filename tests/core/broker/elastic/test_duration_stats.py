"""What brokers learn and tell each other: the same sums in any order, whatever is lost, doubled or late."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.core.broker.elastic import duration_stats
from hanse.core.broker.elastic.duration_stats import (
    KINDS_MAX,
    KINDS_PER_MESSAGE_MAX,
    SIZES_MAX,
    TOTAL_MAX,
    DurationStatsState,
    DurationStatsStore,
)
from hanse.model.duration_stats import DurationStats, DurationStatsUpdate, KindStats
from hanse.model.ids import SECOND, JobId, task_id
from hanse.model.job import TaskGroup
from hanse.model.messages import Envelope, Outcome, ResourceUsage
from hanse.model.resources import Resources
from tests.core.wired import Wired, job, node

NAMES = ("b1", "b2", "b3")


def everybody(_: str) -> bool:
    return True


def league() -> dict[str, DurationStatsStore]:
    return {name: DurationStatsStore([other for other in NAMES if other != name]) for name in NAMES}


def settle(members: dict[str, DurationStatsStore]) -> int:
    """Beats in turn, everything arriving, until nobody has anything to say; how many messages that took."""
    said = 0
    for _ in range(200):
        before = said
        for name in NAMES:
            for peer, news in members[name].make_updates(everybody):
                members[peer].on_duration_stats_update(name, news)
                said += 1
        if said == before:
            return said
    raise AssertionError("they talk for ever")


ENDS = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from("pqr"),
    st.sampled_from((500, 1_000)),
    st.sampled_from((0, 1)),
    st.integers(1, 9),
)
STEPS = st.lists(
    st.one_of(
        ENDS,
        st.tuples(st.just("beat"), st.sampled_from(NAMES)),
        st.tuples(st.just("arrive"), st.integers(0, 99)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, keep=st.booleans())
def test_any_order_loss_and_doubling_ends_in_the_same_sums(
    steps: list[tuple[str, str, int, int, int] | tuple[str, str] | tuple[str, int]], keep: bool
) -> None:
    members, alone = league(), DurationStatsStore(())
    posted: list[tuple[str, str, DurationStatsUpdate]] = []
    for step in steps:
        if step[0] == "beat":
            posted += [(str(step[1]), *told) for told in members[str(step[1])].make_updates(everybody)]
        elif step[0] == "arrive":
            if posted:  # any message that was ever sent, again or for the first time; most never arrive
                at = int(step[1]) % len(posted)
                source, target, news = posted[at] if keep else posted.pop(at)
                members[target].on_duration_stats_update(source, news)
        else:
            name, kind, cpu, gpu, ran = step  # type: ignore[misc]
            members[name].add(kind, cpu, gpu, ran)
            alone.add(kind, cpu, gpu, ran)
    settle(members)
    for source, target, news in posted:  # what is very late changes nothing
        members[target].on_duration_stats_update(source, news)
    settle(members)
    for member in members.values():
        member.check()
        for kind in "pqr":
            assert member.combined_stats(kind) == alone.combined_stats(kind)


def test_who_knows_all_is_told_nothing() -> None:
    members = league()
    assert settle(members) == 0
    members["b1"].add("p", 500, 0, 7)
    assert settle(members) == 4, "two are told, and both confirm"
    assert settle(members) == 0


def test_only_what_changed_is_told() -> None:
    members = league()
    members["b1"].add("p", 500, 0, 7)
    settle(members)
    members["b1"].add("q", 500, 0, 7)
    (_, news), _ = members["b1"].make_updates(everybody)
    assert [learned.kind for learned in news.kinds] == ["q"]


def test_the_dead_are_told_when_they_live() -> None:
    members = league()
    members["b1"].add("p", 500, 0, 7)
    assert [peer for peer, _ in members["b1"].make_updates(lambda name: name == "b3")] == ["b3"]
    settle(members)
    assert members["b2"].combined_stats("p") == (DurationStats(500, 0, 7, 1),)


def test_many_kinds_go_in_portions_and_all_arrive() -> None:
    members = league()
    for number in range(3 * KINDS_PER_MESSAGE_MAX + 1):
        members["b1"].add(f"k{number}", 500, 0, 1 + number)
    (_, first), _ = members["b1"].make_updates(everybody)
    assert len(first.kinds) == KINDS_PER_MESSAGE_MAX
    settle(members)
    for number in range(3 * KINDS_PER_MESSAGE_MAX + 1):
        assert members["b2"].combined_stats(f"k{number}") == (DurationStats(500, 0, 1 + number, 1),)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duration_stats, "KINDS_MAX", 5)
    members = league()
    for number in range(12):
        members["b1"].add(f"k{number}", 500, 0, 7)
        settle(members)
    for member in (members["b1"].state.own, members["b2"].state.peers["b1"].kinds):
        assert sorted(member) == ["k10", "k11", "k7", "k8", "k9"]
    for size in range(SIZES_MAX + 1):
        members["b1"].add("sizes", size, 0, 7)
    assert len(members["b1"].combined_stats("sizes")) == SIZES_MAX
    members["b1"].add("huge", 500, 0, TOTAL_MAX)
    members["b1"].add("huge", 500, 0, 1)
    assert members["b1"].combined_stats("huge") == (DurationStats(500, 0, TOTAL_MAX, 1),)
    assert KINDS_MAX == 1_000


def test_sizes_of_many_brokers_are_bounded_by_the_most_seen() -> None:
    one = DurationStatsStore(("b2", "b3"))
    for size in range(SIZES_MAX):
        one.add("p", 1 + size, 0, 7)
    one.on_duration_stats_update(
        "b2", DurationStatsUpdate(0, 1, (KindStats("p", 1, (DurationStats(9_000, 0, 70, 10),)),))
    )
    found = one.combined_stats("p")
    assert len(found) == SIZES_MAX
    assert found[-1] == DurationStats(9_000, 0, 70, 10)


def test_what_was_heard_outlives_the_process() -> None:
    members = league()
    members["b2"].add("p", 500, 0, 7)
    members["b1"].add("p", 500, 0, 5)
    settle(members)
    again = DurationStatsStore(("b2", "b3"))
    state = msgspec.msgpack.encode(members["b1"].state)
    again.restore(msgspec.msgpack.decode(state, type=DurationStatsState))
    assert again.combined_stats("p") == (DurationStats(500, 0, 12, 2),)
    assert again.make_updates(everybody) == []


def test_a_peer_that_says_it_heard_the_future_is_not_believed() -> None:
    one = DurationStatsStore(("b2",))
    one.on_duration_stats_update("b2", DurationStatsUpdate(0, 0, (), acked_version=1 << 61))
    one.add("p", 500, 0, 7)
    ((_, news),) = one.make_updates(everybody)
    assert [learned.kind for learned in news.kinds] == ["p"]


# --- in a league -------------------------------------------------------------------------------------------

MOST = Resources(cpu=4_000)


def elastic(count: int = 1) -> TaskGroup:
    """Tasks that are thought to run so long that no wait in these tests is in vain."""
    return TaskGroup(count=count, ask=Resources(cpu=500), ask_max=MOST, duration=400 * SECOND)


def run_all(wired: Wired, number: JobId, owner: Callable[[int], int]) -> None:
    while wired.sizes(number):
        for index, size in sorted(wired.sizes(number).items()):
            (attempt,) = [a for task, a in wired.live if task == task_id(number, index)]
            wired.exit(task_id(number, index), attempt, usage=ResourceUsage(run_time=owner(size)))
            wired.deliver()


def one_thread(size: int) -> int:
    return 200 * SECOND * 1_000 // min(size, 1_000)


def known(wired: Wired, broker: str, kind: str = "default/job/main") -> tuple[DurationStats, ...]:
    machine = wired.machines[broker]
    return machine._placement.sizing.duration_stats.combined_stats(kind)  # type: ignore[attr-defined, no-any-return]


def test_what_one_broker_learned_sizes_anothers_jobs() -> None:
    wired = Wired({"c1": (node(8_000),)}, brokers=("b1", "b2"), sizer="priced")
    for _ in range(12):
        run_all(wired, wired.submit(job(elastic(4)), "b1"), one_thread)
    wired.run(5 * SECOND)
    assert sum(seen.count for seen in known(wired, "b1")) == 48
    assert known(wired, "b1") == known(wired, "b2")
    run_all(wired, wired.submit(job(elastic()), "b2"), one_thread)  # the next one is no try
    assert list(wired.sizes(wired.submit(job(elastic()), "b2")).values()) == [1_000]
    assert wired.marks("b2")["broker.learned_from_peer"] > 0


def test_what_a_peer_tells_changes_what_waits() -> None:
    wired = Wired({"c1": (node(4_000),), "c2": (node(4_000),)}, brokers=("b1", "b2"), sizer="priced")
    full = [wired.submit(job(TaskGroup(ask=MOST), clusters_allowed=("c2",)), "b2")]
    waiting = wired.submit(job(elastic(), clusters_allowed=("c2",)), "b2")
    for _ in range(13):
        run_all(wired, wired.submit(job(elastic(2), clusters_allowed=("c1",)), "b1"), one_thread)
    wired.run(5 * SECOND)
    assert wired.marks("b2")["broker.resized"] > 0
    wired.end(full[0])
    assert list(wired.sizes(waiting).values()) == [1_000]


def test_an_adopted_task_counts_once() -> None:
    """The owner places a task, takes its end, and falls silent before the heir knows; the heir adopts."""
    wired = Wired({"c1": (node(8_000),)}, brokers=("b1", "b2"), sizer="priced")
    number = wired.submit(job(elastic(2)))
    hides = True

    def loses(envelope: Envelope) -> bool:
        return hides and {envelope.source, envelope.target} == {"b1", "b2"}

    wired.loses = loses
    ((first, attempt), (second, again)) = sorted(wired.live)
    wired.exit(first, attempt, Outcome.SUCCEEDED, usage=ResourceUsage(run_time=SECOND))
    wired.run(SECOND)
    assert sum(seen.count for seen in known(wired, "b1")) == 1
    wired.deaf["b1"] = True
    wired.run(40 * SECOND)
    assert wired.marks("b2")["broker.adopted_estate"] == 1
    wired.exit(second, again, Outcome.SUCCEEDED, usage=ResourceUsage(run_time=SECOND))
    wired.run(5 * SECOND)
    assert wired.outcome(number, 0) is Outcome.SUCCEEDED
    assert wired.outcome(number, 1) is Outcome.SUCCEEDED
    hides = False
    wired.restart("b1")
    wired.run(20 * SECOND)
    for broker in ("b1", "b2"):
        assert [(seen.cpu, seen.count) for seen in known(wired, broker)] == [(4_000, 1)]
    wired.check_idle()
