"""The fast path: a broker claims what it sees; the warden takes, substitutes or refuses."""

import pytest

from hanse.core.broker.cluster_view import WARY_TIME
from hanse.core.broker.placement_reasons import ASKED_FOR, NO_ROOM_SEEN, NONE_OPEN, WARDENS_JUDGE
from hanse.core.config import NodeConfig
from hanse.model.constraints import Is
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import SECOND, JobId, task_id
from hanse.model.job import Affinity, JobClass, JobSpec, Proximity
from hanse.model.messages import Claim, ClaimReply, ClusterSnapshot, Demand, RefusalReason
from hanse.model.resources import Resources
from tests.core.wired import Wired, job, node, tasks

MINUTE = 60 * SECOND


def test_a_claim_on_free_nodes_is_taken_as_proposed() -> None:
    league = Wired({"c1": (node(), node())})
    number = league.submit(job(tasks(3)))
    (claim,), (answer,) = league.bodies(Claim), league.bodies(ClaimReply)
    assert claim.batches[0].nodes == (0, 0, 0)  # best fit fills one node
    assert (answer.number, answer.substituted, answer.refused) == (claim.number, (), ())
    assert league.running(number) == {0: ("c1", 0), 1: ("c1", 0), 2: ("c1", 0)}


def test_two_brokers_that_see_the_same_room_get_substitutes_not_denials() -> None:
    league = Wired({"c1": (node(1_000), node(1_000), node(1_000))}, ("b1", "b2"))
    league.hand_in(job(tasks(1)), "b1")
    league.hand_in(job(tasks(1)), "b2")
    league.run(SECOND)
    nodes = [launch.node for _, launch in league.live.values()]
    assert len(nodes) == len(set(nodes)) == 2
    assert not [answer for answer in league.bodies(ClaimReply) if answer.refused]


def stale_b2(*nodes: NodeConfig, node_ranker: str = "first") -> Wired:
    """A cluster whose warden b2 cannot hear for now, so that it goes by what it saw when all was free."""
    league = Wired({"c1": nodes}, ("b1", "b2"), node_ranker=node_ranker)
    league.loses = lambda envelope: envelope.source == "c1" and envelope.target == "b2"
    return league


def hear(league: Wired) -> None:
    league.loses = lambda _: False


def test_a_stale_claim_is_substituted_and_the_answer_says_by_which_node() -> None:
    league = stale_b2(node(1_000, zone="a"), node(1_000, zone="b"))
    league.submit(job(tasks(1, where=Is("zone", "b"))), "b1")
    hear(league)
    before = len(league.said)
    number = league.submit(job(tasks(1)), "b2")  # node 1 is in its share of the nodes, and looks free
    (claim,), (answer,) = league.bodies(Claim, before), league.bodies(ClaimReply, before)
    assert claim.batches[0].nodes == (1,)
    assert (answer.substituted, answer.refused) == (((task_id(number, 0), 0),), ())
    assert league.running(number) == {0: ("c1", 0)}


@pytest.mark.parametrize(("node_ranker", "expected"), [("first", 1), ("best-fit", 0), ("spread", 3)])
def test_a_warden_substitutes_by_its_node_ranker(node_ranker: str, expected: int) -> None:
    nodes = (node(1_000, zone="a"), node(4_000, zone="a"), node(1_000, zone="b"), node(8_000, zone="a"))
    league = stale_b2(*nodes, node_ranker=node_ranker)
    league.submit(job(tasks(1, where=Is("zone", "b"))), "b1")
    hear(league)
    before = len(league.said)
    number = league.submit(job(tasks(1)), "b2")
    (claim,), (answer,) = league.bodies(Claim, before), league.bodies(ClaimReply, before)
    assert claim.batches[0].nodes == (2,)
    assert answer.substituted == ((task_id(number, 0), expected),)
    assert league.running(number) == {0: ("c1", expected)}
    league.check()


def test_a_substitute_keeps_to_the_constraint() -> None:
    league = stale_b2(node(1_000, zone="a"), node(1_000, zone="b"))
    league.submit(job(tasks(1, where=Is("zone", "b"))), "b1")
    hear(league)
    number = league.submit(job(tasks(1, where=Is("zone", "b"))), "b2")
    assert league.running(number) == {}
    assert league.marks("c1")["warden.refused_no_room"] == 1


def test_a_refusal_has_a_reason_and_brings_the_news_with_it() -> None:
    league = Wired({"c1": (node(1_000),)}, ("b1", "b2"))
    league.hand_in(job(tasks(1)), "b1")
    league.prompt("b1")  # no time passes: the news of it is still being collected
    before = len(league.said)
    league.hand_in(job(tasks(1)), "b2")
    league.prompt("b2")
    answer = next(answer for answer in league.bodies(ClaimReply, before) if answer.refused)
    assert [entry.reason for entry in answer.refused] == [RefusalReason.NO_ROOM]
    assert answer.delta is not None
    assert answer.delta.free == ((0, 0, 0),)
    assert league.marks("b2")["broker.refused_no_room"] == 1


def test_after_a_refusal_a_task_waits_as_demand_and_is_not_claimed_again_without_news() -> None:
    league = stale_b2(node(1_000))
    blocker = league.submit(job(tasks(1)), "b1")
    hear(league)
    waiting = league.submit(job(tasks(1)), "b2")
    before = len(league.said)
    league.run(20 * SECOND)
    assert not league.bodies(Claim, before)
    league.end(blocker)
    assert league.running(waiting) == {0: ("c1", 0)}


def waits_because(league: Wired, number: JobId) -> list[str]:
    return [
        told.reason for told in league.decisions if told.job == number and told.kind is DecisionKind.WAITING
    ]


def test_what_waits_is_told_why_and_not_of_views_that_nobody_looked_at() -> None:
    full = Wired({"c1": (node(1_000),)})
    full.submit(job(tasks(1)))
    assert waits_because(full, full.submit(job(tasks(1)))) == [NO_ROOM_SEEN]

    refused = stale_b2(node(1_000))
    refused.submit(job(tasks(1)), "b1")
    hear(refused)
    number = refused.submit(job(tasks(1)), "b2")
    assert waits_because(refused, number) == [ASKED_FOR, NO_ROOM_SEEN]  # the latter when news had come

    alone = Wired({"c1": (node(),)})
    number = alone.submit(job(tasks(1, affinity=(Affinity("db"),))))
    alone.run(20 * SECOND)
    assert waits_because(alone, number) == [WARDENS_JUDGE]

    cut = Wired({"c1": (node(),), "c2": (node(),)})
    cut.loses = lambda envelope: envelope.source == "c1"
    cut.run(MINUTE)  # c1 is given up
    number = cut.submit(job(tasks(1), clusters_allowed=("c1",)))
    cut.run(20 * SECOND)
    assert waits_because(cut, number) == [NONE_OPEN]


def test_a_claim_fills_up_what_there_is_and_the_rest_is_demand() -> None:
    league = Wired({"c1": (node(2_000),), "c2": (node(1_000),)})
    number = league.submit(job(tasks(5)))
    assert sorted(place for place, _ in league.running(number).values()) == ["c1", "c1", "c2"]
    demands = [lines for claim in league.bodies(Claim) for lines in claim.demand or ()]
    demands += [line for demand in league.bodies(Demand) for line in demand.lines]
    assert demands[-1].count == 2


def test_claims_of_one_message_stay_within_the_batch() -> None:
    league = Wired({"c1": tuple(node(100_000) for _ in range(4))})
    league.submit(job(tasks(350)))
    claims = league.bodies(Claim)
    assert [sum(len(batch.tasks) for batch in claim.batches) for claim in claims] == [100, 100, 100, 50]
    assert [claim.number for claim in claims] == [1, 2, 3, 4]


def test_only_latency_work_may_use_the_reserve() -> None:
    league = Wired({"c1": (node(1_000), node(1_000), node(1_000))}, reserve=1)
    batch = league.submit(job(tasks(3)))
    assert sorted(place for _, place in league.running(batch).values()) == [0, 1]
    urgent = league.submit(job(tasks(1), klass=JobClass.LATENCY))
    assert league.running(urgent) == {0: ("c1", 2)}


def test_the_reserve_is_kept_from_demand_too() -> None:
    league = Wired({"c1": (node(1_000), node(1_000))}, reserve=1)
    urgent = league.submit(job(tasks(2), klass=JobClass.LATENCY))
    batch = league.submit(job(tasks(1)))
    on_reserve = next(index for index, (_, place) in league.running(urgent).items() if place == 1)
    league.end(urgent, on_reserve)
    assert league.running(batch) == {}
    league.end(urgent)
    assert league.running(batch) == {0: ("c1", 0)}


def test_elastic_tasks_get_the_largest_size_that_fits_all_of_them() -> None:
    league = Wired({"c1": (node(8_000),)}, sizer="generous")
    alone = league.submit(job(tasks(1, 1_000, ask_max=Resources(cpu=5_000))))
    assert league.sizes(alone) == {0: 5_000}
    three = league.submit(job(tasks(3, 1_000, ask_max=Resources(cpu=5_000))))
    assert league.sizes(three) == {0: 1_000, 1: 1_000, 2: 1_000}


def test_elastic_tasks_get_the_least_from_a_sizer_that_says_so() -> None:
    league = Wired({"c1": (node(8_000),)}, sizer="least")
    number = league.submit(job(tasks(2, 1_000, ask_max=Resources(cpu=4_000))))
    assert league.sizes(number) == {0: 1_000, 1: 1_000}


def test_near_goes_only_where_the_label_runs() -> None:
    league = Wired({"c1": tuple(node() for _ in range(4))}, placer="spread")
    data = league.submit(job(tasks(1), labels=("db",)))
    friend = league.submit(job(tasks(2, affinity=(Affinity("db"),))))
    (home,) = league.running(data).values()
    assert set(league.running(friend).values()) == {home}


def test_near_waits_while_the_label_runs_nowhere() -> None:
    league = Wired({"c1": (node(), node())})
    friend = league.submit(job(tasks(1, affinity=(Affinity("db"),))))
    league.run(10 * SECOND)
    assert league.running(friend) == {}
    data = league.submit(job(tasks(1), labels=("db",)))
    league.run(10 * SECOND)
    assert league.running(friend)[0] == league.running(data)[0]


def test_apart_keeps_away_from_a_label_that_runs() -> None:
    league = Wired({"c1": (node(), node())})
    data = league.submit(job(tasks(1), labels=("db",)))
    shy = league.submit(job(tasks(3, affinity=(Affinity("db", apart=True),))))
    (home,) = league.running(data).values()
    assert len(league.running(shy)) == 3
    assert home not in league.running(shy).values()


def test_apart_also_keeps_the_label_away_from_what_is_shy_of_it() -> None:
    league = Wired({"c1": (node(), node())})
    shy = league.submit(job(tasks(1, affinity=(Affinity("db", apart=True),))))
    data = league.submit(job(tasks(4), labels=("db",)))
    (home,) = league.running(shy).values()
    assert len(league.running(data)) == 4
    assert home not in league.running(data).values()


def test_apart_from_the_own_label_spreads_a_job_over_nodes() -> None:
    league = Wired({"c1": (node(), node(), node())})
    number = league.submit(job(tasks(5, affinity=(Affinity("me", apart=True),)), labels=("me",)))
    league.run(5 * SECOND)
    assert sorted(league.running(number).values()) == [("c1", 0), ("c1", 1), ("c1", 2)]


def test_apart_from_the_own_label_in_the_cluster_spreads_a_job_over_clusters() -> None:
    league = Wired({"c1": (node(), node()), "c2": (node(),)})
    wish = Affinity("me", Proximity.CLUSTER, apart=True)
    number = league.submit(job(tasks(3, affinity=(wish,)), labels=("me",)))
    league.run(5 * SECOND)
    assert sorted(place for place, _ in league.running(number).values()) == ["c1", "c2"]


def test_drained_nodes_finish_what_they_run_and_take_nothing_new() -> None:
    league = Wired({"c1": (node(1_000), node(1_000))})
    running = league.submit(job(tasks(1)))
    ((_, closed),) = league.running(running).values()
    league.drain("c1", closed)
    assert league.running(running) == {0: ("c1", closed)}
    league.end(running)
    later = league.submit(job(tasks(2)))
    assert list(league.running(later).values()) == [("c1", 1 - closed)]
    league.drain("c1", closed, closed=False)
    assert len(league.running(later)) == 2


def test_a_drained_cluster_passes_work_to_the_others() -> None:
    league = Wired({"c1": (node(), node()), "c2": (node(),)})
    league.drain("c1")
    number = league.submit(job(tasks(3)))
    assert {place for place, _ in league.running(number).values()} == {"c2"}


def test_forbidden_and_allowed_clusters_are_kept_to() -> None:
    league = Wired({"c1": (node(),), "c2": (node(),), "c3": (node(),)})
    one = league.submit(job(tasks(4), clusters_allowed=("c2",)))
    other = league.submit(job(tasks(4), clusters_forbidden=("c2", "c3")))
    assert {place for place, _ in league.running(one).values()} == {"c2"}
    assert {place for place, _ in league.running(other).values()} == {"c1"}


def test_a_cluster_with_the_data_comes_first() -> None:
    league = Wired({name: (node(),) for name in ("c1", "c2", "c3", "c4")})
    number = league.submit(job(tasks(6), data=("c3", "c1")))
    places = [place for place, _ in league.running(number).values()]
    assert sorted(places) == ["c1", "c1", "c3", "c3", "c3", "c3"]


def test_a_broker_learns_of_a_cluster_by_its_snapshot() -> None:
    league = Wired({"c1": (node(gpu_kind="a100"),)})
    snapshot = league.bodies(ClusterSnapshot)[-1]
    assert snapshot.capacity == ((4_000, 0, 0),)
    assert snapshot.attributes == ((("gpu_kind", "a100"),),)
    assert snapshot.partitions == ("b1",)


def test_what_has_ended_is_settled_everywhere_and_nothing_is_left_over() -> None:
    league = Wired({"c1": (node(), node()), "c2": (node(),)}, ("b1", "b2"))
    number = league.submit(job(tasks(12)), "b2")
    assert len(league.running(number)) == 12
    league.end(number)
    league.run(MINUTE)
    league.check_idle()
    assert len(league.settled) == 12


def shares_used(spec: JobSpec) -> dict[str, list[int]]:
    """Cluster -> nodes on which a job of the second of two brokers runs; its share are nodes 2 and 3."""
    league = Wired({name: (node(1_000),) * 4 for name in ("c1", "c2", "c3")}, ("b1", "b2"))
    league.submit(spec, broker="b2")
    used: dict[str, list[int]] = {}
    for cluster, launch in league.live.values():
        used.setdefault(cluster, []).append(launch.node)
    return {cluster: sorted(nodes) for cluster, nodes in sorted(used.items())}


def test_the_own_share_of_every_cluster_comes_before_the_share_of_others() -> None:
    assert shares_used(job(tasks(6))) == {"c1": [2, 3], "c2": [2, 3], "c3": [2, 3]}


def test_what_does_not_fit_into_the_own_shares_is_borrowed() -> None:
    used = shares_used(job(tasks(9)))
    assert sum(len(nodes) for nodes in used.values()) == 9
    assert all({2, 3} <= {*nodes} for nodes in used.values())


def test_what_is_borrowed_comes_from_all_clusters_alike() -> None:
    assert {len(nodes) for nodes in shares_used(job(tasks(9))).values()} == {3}


def two_brokers() -> Wired:
    """The second of two brokers has six nodes of its own, and six of the other's are free."""
    return Wired({name: (node(1_000),) * 4 for name in ("c1", "c2", "c3")}, ("b1", "b2"))


def claimed_and_granted(league: Wired, count: int) -> tuple[int, int]:
    """How many tasks of a job of the second broker are claimed outright, how many by a grant."""
    before = len(league.said)
    number = league.submit(job(tasks(count)), broker="b2")
    assert len(league.running(number)) == count
    batches = [batch for claim in league.bodies(Claim, before) for batch in claim.batches]
    league.end(number)
    return (
        sum(len(batch.tasks) for batch in batches if not batch.lease),
        sum(len(batch.tasks) for batch in batches if batch.lease),
    )


def test_all_the_room_that_is_seen_is_borrowed_unasked() -> None:
    assert claimed_and_granted(two_brokers(), 12) == (12, 0)


def refuse_b2_something(league: Wired) -> None:
    """The second broker claims what the first has taken without its knowing."""
    league.loses = lambda envelope: envelope.source.startswith("c") and envelope.target == "b2"
    first = league.submit(job(tasks(12)), broker="b1")
    hear(league)
    before = len(league.said)
    second = league.submit(job(tasks(1)), broker="b2")
    assert [answer for answer in league.bodies(ClaimReply, before) if answer.refused]
    league.end(first)
    league.end(second)


def test_who_was_refused_something_borrows_unasked_only_where_there_is_plenty() -> None:
    league = two_brokers()
    refuse_b2_something(league)
    assert claimed_and_granted(league, 7) == (7, 0)
    assert claimed_and_granted(league, 8) == (6, 2)
    league.run(WARY_TIME)
    assert claimed_and_granted(league, 8) == (8, 0)


def test_what_was_refused_is_asked_for_and_not_claimed_elsewhere() -> None:
    sizes = {"c1": 4, "c2": 12, "c3": 12}  # half of it is b2's own
    league = Wired({name: (node(1_000),) * size for name, size in sizes.items()}, ("b1", "b2"))
    league.loses = lambda envelope: envelope.source == "c1" and envelope.target == "b2"
    first = league.submit(job(tasks(4), clusters_allowed=("c1",)), broker="b1")
    hear(league)
    before = len(league.said)
    second = league.submit(job(tasks(14)), broker="b2")  # two of them on its own nodes of c1, as it believes
    said = [(target, body) for source, target, body in league.said[before:] if source == "b2"]
    refused = [task for answer in league.bodies(ClaimReply, before) for task in answer.refused]
    again = [
        batch for _, body in said if isinstance(body, Claim) for batch in body.batches if 2 in batch.attempts
    ]
    assert len(refused) == 2
    assert {target for target, body in said if isinstance(body, Demand)} == {"c1", "c2", "c3"}
    assert all(batch.lease for batch in again)
    assert len(league.running(first)) == 4
    assert len(league.running(second)) == 14


def test_a_grant_that_nobody_needed_leaves_no_later_want_unsaid() -> None:
    league = Wired({name: (node(1_000),) for name in ("c1", "c2")})
    first = league.submit(job(tasks(2)))
    second = league.submit(job(tasks(1)))
    before = len(league.said)
    for index in (0, 1):  # both clusters offer their node to the one task that waits
        league.exit(task_id(first, index), 1)
    league.run(SECOND // 5)  # shorter than a beat, which would repeat every want
    assert sum(len(claim.releases) for claim in league.bodies(Claim, before)) == 1
    (elsewhere,) = {"c1", "c2"} - {place for place, _ in league.running(second).values()}
    before = len(league.said)
    league.hand_in(job(tasks(2)))
    league.deliver()
    (claim,) = league.bodies(Claim, before)
    assert [target for _, target, body in league.said[before:] if body is claim] == [elsewhere]
    assert [line.count for line in claim.demand or ()] == [1], "one of the two tasks waits"


def test_who_has_its_data_in_a_cluster_borrows_there_first() -> None:
    assert shares_used(job(tasks(4), data=("c2",))) == {"c2": [0, 1, 2, 3]}
