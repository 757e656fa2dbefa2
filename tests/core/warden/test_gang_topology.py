"""Gangs with a topology in a wired league: claims, grants, holds, losses, restarts, refusals."""

from hanse.core.config import GANG_PORTS, LOCAL_HOST
from hanse.model.ids import INDEX_BITS, SECOND, JobId, task_id
from hanse.model.job import Together
from hanse.model.messages import Outcome, TaskPlace
from tests.core.wired import Wired, job, node, tasks

RACKS = (
    node(2_000, rack="r1"),
    node(2_000, rack="r1"),
    node(2_000, rack="r2"),
    node(2_000, rack="r2"),
    node(2_000, rack="r2"),
    node(8_000),
)


def nodes_of(league: Wired, number: JobId) -> list[int]:
    """Nodes of a job's tasks, by index."""
    return [place for _, (_, place) in sorted(league.running(number).items())]


def places_of(league: Wired, number: JobId) -> list[TaskPlace]:
    """Places that a job's live tasks were told, by index."""
    found = [
        league.live[key][1].place for key in sorted(league.live) if key[0] >> INDEX_BITS == number
    ]  # fmt: skip
    assert None not in found
    return [place for place in found if place is not None]


def test_a_gang_waits_for_a_rack_although_the_cluster_has_room() -> None:
    league = Wired({"c1": RACKS})
    first = league.submit(job(tasks(4), gang=True, together=Together.RACK))
    assert nodes_of(league, first) == [0, 0, 1, 1], "of the racks that fit the one with the least room"
    second = league.submit(job(tasks(6), gang=True, together=Together.RACK))
    assert nodes_of(league, second) == [2, 2, 3, 3, 4, 4]
    third = league.submit(job(tasks(3), gang=True, together=Together.RACK))
    assert nodes_of(league, third) == [], "the node in no rack is not used"
    league.end(first)
    assert set(nodes_of(league, third)) == {0, 1}
    league.check()


def test_a_hold_keeps_nodes_of_one_rack() -> None:
    league = Wired({"c1": RACKS[:5]})
    small = [league.submit(job(tasks(1))) for _ in range(10)]
    gang = league.submit(job(tasks(4), gang=True, together=Together.RACK))
    late = [league.submit(job(tasks(1))) for _ in range(10)]
    for number in small:
        league.end(number)
    assert len({node < 2 for node in nodes_of(league, gang)}) == 1
    assert len(nodes_of(league, gang)) == 4
    assert league.marks("c1")["warden.holds_part"] >= 1
    league.end(gang)
    assert all(league.running(number) for number in late)


def test_a_spread_gang_takes_turns_over_the_values() -> None:
    zones = (node(4_000, zone="a"), node(4_000, zone="b"), node(1_000, zone="c"), node(4_000))
    league = Wired({"c1": zones})
    gang = league.submit(job(tasks(6), gang=True, spread="zone"))
    assert nodes_of(league, gang) == [0, 0, 0, 1, 1, 2]
    places = places_of(league, gang)
    assert [place.local_rank for place in places] == [0, 1, 2, 0, 1, 0]
    assert {(place.hosts, place.nodes) for place in places} == {(f"{LOCAL_HOST}:6", 3)}
    league.end(gang)
    reason = league.rejected(job(tasks(6), gang=True, spread="zone", spread_max=2))
    assert "with at most 2 for each 'zone': the best, cluster c1, has room for 5" in reason


def test_what_fits_in_no_part_is_refused_with_the_largest() -> None:
    league = Wired({"c1": RACKS, "c2": (node(4_000, rack="x"),)})
    reason = league.rejected(job(tasks(7), gang=True, together=Together.RACK))
    assert "no rack has room for 7 tasks of 1 CPU: the best, rack r2 of cluster c1, has room for 6" in reason
    reason = league.rejected(job(tasks(9), gang=True, together=Together.NODE))
    assert "no node has room for 9 tasks of 1 CPU: the best, node 5 of cluster c1, has room for 8" in reason
    reason = league.rejected(job(tasks(2, cpu=8_000), gang=True, together=Together.RACK))
    assert "has the attribute 'rack'" in reason


def test_a_gang_that_starts_again_is_told_anew() -> None:
    league = Wired({"c1": (node(1_000, "r1"), node(1_000, "r2"), node(1_000, "r3"))})
    gang = league.submit(job(tasks(3), gang=True))
    first = places_of(league, gang)
    assert [(place.rank, place.world_size) for place in first] == [(0, 3), (1, 3), (2, 3)]
    league.exit(task_id(gang, 0), 1)
    league.exit(task_id(gang, 2), 1, outcome=Outcome.LOST)
    league.run(5 * SECOND)
    second = places_of(league, gang)
    assert [(place.rank, place.world_size) for place in second] == [(0, 2), (1, 2)]
    assert {place.port for place in second}.isdisjoint({place.port for place in first})


def test_a_restarted_warden_gives_no_port_twice() -> None:
    league = Wired({"c1": (node(200_000),)})
    first = league.submit(job(tasks(2), gang=True))
    league.restart("c1")
    for _ in range(GANG_PORTS - 1):
        league.submit(job(tasks(1)))
    second = league.submit(job(tasks(2), gang=True))  # its first choice is the port of the first one
    ports = [{place.port for place in places_of(league, gang)} for gang in (first, second)]
    assert [len(each) for each in ports] == [1, 1]
    assert ports[0] != ports[1]
    league.check()
