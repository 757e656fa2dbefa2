"""Layouts of gangs: ranks, nodes, hosts and ports, from the warden's choice to what a task is told."""

from hypothesis import given
from hypothesis import strategies as st

from hanse.core.config import GANG_PORTS
from hanse.core.warden.gang_layouts import GangLayouts
from hanse.core.warden.ledger_records import ORDERED, AttemptRecord
from hanse.model.ids import TaskId, job_id, task_id
from hanse.model.messages import GroupLayout, Shape, TaskTemplate
from hanse.model.messages.group_layout import PlaceFinder, places_of
from hanse.model.resources import Resources

ONE = Resources(cpu=1_000)
HOSTS = ("10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::3")
JOB = job_id(1, 7)


def template(gang: int, count: int, first: int = 0, group: str = "main") -> TaskTemplate:
    return TaskTemplate(Shape(ONE, gang=gang), "b1#1", group=group, first=first, count=count)


def tasks_of(*indices: int) -> list[TaskId]:
    return [task_id(JOB, index) for index in indices]


def lay_out(tasks: list[TaskId], nodes: list[int], count: int, attempt: int = 1) -> GroupLayout:
    layouts = GangLayouts(HOSTS, 20_000)
    found = layouts.lay_out(template(len(tasks), count), tasks, [attempt] * len(tasks), nodes)
    assert found is not None
    return found


def test_a_gang_on_three_nodes() -> None:
    layout = lay_out(tasks_of(0, 1, 2, 3), [0, 0, 1, 2], 4)
    places = places_of(layout)
    last = places[task_id(JOB, 3)]
    assert (last.rank, last.world_size, last.node_rank, last.nodes) == (3, 4, 2, 3)
    assert last.hosts == "10.0.0.1:3,10.0.0.2:1"
    assert (last.address, last.port) == ("10.0.0.1", layout.port)
    assert [(place.local_rank, place.local_size) for place in places.values()] == [
        (0, 2),
        (1, 2),
        (0, 1),
        (0, 1),
    ]


def test_the_rest_of_a_gang_is_a_world_of_its_own() -> None:
    """Of five tasks two have succeeded; the others start again, in any order of the claim."""
    layout = lay_out(tasks_of(4, 1, 3), [3, 2, 2], 5)
    assert layout.ranks == (1, 3, 4)
    places = places_of(layout)
    assert [places[task].rank for task in tasks_of(1, 3, 4)] == [0, 1, 2]
    assert places[task_id(JOB, 4)].hosts == "10.0.0.2:2,[fd00::3]:1"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_every_rank_is_told_the_truth(nodes: list[int]) -> None:
    """Also where the tasks of a node are not neighbours."""
    places = places_of(lay_out(tasks_of(*range(len(nodes))), nodes, len(nodes)))
    for index, (task, place) in enumerate(places.items()):
        assert (task, place.rank, place.world_size) == (task_id(JOB, index), index, len(nodes))
        before = nodes[:index]
        assert place.local_rank == before.count(nodes[index])
        assert place.local_size == nodes.count(nodes[index])
        assert place.node_rank == len({*before, nodes[index]}) - 1 or nodes[index] in before
        assert place.nodes == len(set(nodes))
        assert sum(int(entry.rpartition(":")[2]) for entry in place.hosts.split(",")) == len(nodes)


def test_groups_that_are_no_gang_have_ranks_only() -> None:
    layouts = GangLayouts(HOSTS, 20_000)
    assert layouts.lay_out(template(0, 1), tasks_of(0), [1], [0]) is None
    one = layouts.lay_out(template(0, 3, 2, "build"), tasks_of(2, 4), [1, 1], [0, 1])
    assert one == GroupLayout(JOB, 2, 3, "build")
    finder = PlaceFinder((one,))
    place = finder.find(task_id(JOB, 4))
    assert place is not None
    assert (place.group, place.rank, place.world_size, place.local_size) == ("build", 2, 3, 0)
    assert finder.find(task_id(JOB, 5)) is None


def record(serial: int, node: int, port: int) -> AttemptRecord:
    task = task_id(job_id(1, serial), 0)
    return AttemptRecord(task, 1, node, ONE, (1_000, 0, 0), template(2, 2), ORDERED, 0, "", port)


def test_gangs_on_one_host_have_different_ports_until_all_are_in_use() -> None:
    layouts = GangLayouts(HOSTS, 20_000)
    runs = []
    for serial in range(GANG_PORTS):
        tasks = [task_id(job_id(1, serial * 3), index) for index in (0, 1)]
        layout = layouts.lay_out(template(2, 2), tasks, [1, 1], [serial % 2, 2])
        assert layout is not None
        assert 20_000 <= layout.port < 20_000 + GANG_PORTS
        runs.append(record(serial * 3, serial % 2, layout.port))
        layouts.count_port(runs[-1])
    assert len(layouts.ports) == GANG_PORTS
    layouts.check(runs)
    for run in runs:
        layouts.count_port(run, -1)
    assert layouts.ports == {}


def test_the_next_attempt_has_another_port() -> None:
    ports = [lay_out(tasks_of(0, 1), [0, 1], 2, attempt).port for attempt in range(1, 50)]
    assert len(set(ports)) == len(ports)
