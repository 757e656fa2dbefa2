"""Settings that change between two lives of a member: the past replays under those it was lived under."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.core.broker.broker import Broker
from hanse.core.config import NodeConfig, Timings, WardenConfig
from hanse.core.warden.warden import Warden
from hanse.league.config import LeagueConfig, LeagueError, PolicyConfig
from hanse.league.reader import league_from_data
from hanse.live.config.config_history import (
    CONFIG_HISTORY_FILE,
    BrokerSettings,
    ConfigEntry,
    MachineReplay,
    MemberSettings,
    WardenSettings,
    member_settings,
    read_config_history,
    write_config_history,
)
from hanse.live.config.discovered_nodes import merge_nodes
from hanse.live.recovery import RecoveredMember, recover
from hanse.model.effects import Effect
from hanse.model.events import Booted, CapacityWithheld, Event, Tick
from hanse.model.ids import SECOND
from hanse.model.resources import Resources
from tests.core.wired import Wired, job, node, tasks

POLICIES = PolicyConfig("fifo", "best-fit", "best-standing", "least")


class Recorded(Wired):
    """Keeps the events of one machine."""

    def __init__(self, whose: str, *nodes: NodeConfig) -> None:
        self.whose = whose
        self.events: list[Event] = []
        super().__init__({"c1": nodes}, ("b1",))

    def give(self, name: str, event: Event) -> list[Effect]:
        if name == self.whose:
            self.events.append(event)
        return super().give(name, event)


def busy(whose: str) -> Recorded:
    """A cluster of one node of four CPUs with three tasks on it, one over and one waiting for more room."""
    league = Recorded(whose, node(4_000))
    number = league.submit(job(tasks(4)))
    league.submit(job(tasks(2)))
    league.end(number, 0)
    league.run(SECOND)
    return league


def live(directory: Path, settings: MemberSettings, events: list[Event]) -> bytes:
    """One life: come back, take events, and stop; the state at its end."""
    found = recover(directory, settings)
    for event in events:
        found.journal.append(msgspec.msgpack.encode(event))
        found.machine.handle(event)
    found.journal.commit()
    found.journal.close()
    return found.machine.dump()


def come_back(directory: Path, settings: MemberSettings) -> RecoveredMember:
    found = recover(directory, settings)
    found.journal.close()
    return found


def changed(settings: MemberSettings, **fields: Any) -> MemberSettings:
    config = msgspec.structs.replace(settings.config, **fields)
    return msgspec.structs.replace(settings, config=config)


def warden_of(league: Recorded) -> WardenSettings:
    machine = league.machines["c1"]
    assert isinstance(machine, Warden)
    return WardenSettings(machine.config)


def broker_of(league: Recorded) -> BrokerSettings:
    machine = league.machines["b1"]
    assert isinstance(machine, Broker)
    return BrokerSettings(machine.config, POLICIES)


def test_settings_change_at_the_record_after_which_they_count_and_not_before() -> None:
    first = WardenSettings(WardenConfig("c1", (), ("b1",)))
    second = WardenSettings(WardenConfig("c1", (), ("b1",), runs_max=7))
    past = MachineReplay([ConfigEntry(0, first), ConfigEntry(5, second)], 0, None)
    past.advance(4)
    assert past.settings == first
    past.advance(5)
    assert past.settings == second
    assert MachineReplay([ConfigEntry(0, first), ConfigEntry(5, second)], 4, None).settings == first
    assert MachineReplay([ConfigEntry(0, first), ConfigEntry(5, second)], 5, None).settings == second


def test_the_same_settings_are_one_era(tmp_path: Path) -> None:
    league = busy("c1")
    settings = warden_of(league)
    state = live(tmp_path, settings, league.events)
    assert state == league.machines["c1"].dump()
    assert come_back(tmp_path, settings).machine.dump() == state
    assert [era.after for era in read_config_history(tmp_path, settings)] == [0]


def test_another_node_ranker_counts_from_its_record_on(tmp_path: Path) -> None:
    league = busy("c1")
    old = warden_of(league)
    state = live(tmp_path, old, league.events)
    new = msgspec.structs.replace(old, node_ranker="spread")
    assert come_back(tmp_path, new).machine.dump() == state
    entries = read_config_history(tmp_path, new)
    assert [(entry.after, entry.settings) for entry in entries] == [(0, old), (len(league.events), new)]


def test_a_record_from_before_there_were_node_rankers_means_the_first(tmp_path: Path) -> None:
    settings = WardenSettings(WardenConfig("c1", (), ("b1",)))
    write_config_history(tmp_path, [ConfigEntry(0, settings)])
    record = tmp_path / CONFIG_HISTORY_FILE
    (entry,) = msgspec.json.decode(record.read_bytes())
    assert entry["settings"].pop("node_ranker") == "first"
    record.write_bytes(msgspec.json.encode([entry]))
    assert read_config_history(tmp_path, settings) == [ConfigEntry(0, settings)]


def test_the_league_file_names_the_node_ranker_of_every_warden() -> None:
    data = {"brokers": [{"name": "b1"}], "clusters": [{"name": "c1", "nodes": [{}]}]}
    league = league_from_data({**data, "policy": {"node_ranker": "best-fit"}})
    usual = league_from_data(data)
    assert isinstance(league, LeagueConfig)
    assert isinstance(usual, LeagueConfig)
    assert member_settings(league, "c1") == WardenSettings(league.warden_config("c1"), "best-fit")
    assert member_settings(usual, "c1") == WardenSettings(usual.warden_config("c1"), "first")


def test_a_warden_whose_cluster_grew_keeps_what_it_has_and_replays_the_same_again(tmp_path: Path) -> None:
    """The past had one node. Under two, the waiting tasks would have found room then."""
    league = busy("c1")
    old = warden_of(league)
    state = live(tmp_path, old, league.events)
    new = changed(old, nodes=(*old.config.nodes, old.config.nodes[0]))
    grown = come_back(tmp_path, new)
    assert isinstance(grown.machine, Warden)
    before, after = msgspec.msgpack.decode(state), msgspec.msgpack.decode(grown.machine.dump())
    assert after["runs"] == before["runs"]
    assert after["wants"] == before["wants"]
    assert len(grown.machine.states()) == 2
    boot = Booted(league.now + SECOND, 2, 7)
    later = live(tmp_path, new, [boot, Tick(league.now + 2 * SECOND)])
    assert come_back(tmp_path, new).machine.dump() == later, "crossing the boundary again gives the same"
    assert [era.after for era in read_config_history(tmp_path, new)] == [0, len(league.events)]


def test_a_resource_that_was_not_there_before_makes_a_new_column(tmp_path: Path) -> None:
    league = busy("c1")
    old = warden_of(league)
    live(tmp_path, old, league.events)
    wider = NodeConfig(Resources(cpu=4_000, custom=(("fpga", 2),)), (), old.config.nodes[0].runner)
    found = come_back(tmp_path, changed(old, nodes=(wider,)))
    assert isinstance(found.machine, Warden)
    assert [free for _, _, free in found.machine.states()] == [(0, 0, 0, 2)]


def test_a_node_that_others_used_may_come_back_smaller(tmp_path: Path) -> None:
    """Eight CPUs with three in tasks and five for others; then four, of which three are still in tasks."""
    league = Recorded("c1", node(8_000))
    league.submit(job(tasks(3)))
    league.give("c1.r1", CapacityWithheld(league.now, ((0, Resources(cpu=5_000)),)))
    league.run(SECOND)
    old = warden_of(league)
    live(tmp_path, old, league.events)
    smaller = NodeConfig(Resources(cpu=4_000), (), old.config.nodes[0].runner)
    found = come_back(tmp_path, changed(old, nodes=(smaller,)))
    assert isinstance(found.machine, Warden)
    found.machine.check()
    assert [free[0] for _, _, free in found.machine.states()] == [0], "the one CPU left is for others"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ((), "had 1"),
        ((NodeConfig(Resources(cpu=2_000), (), "c1.r1"),), "less than its tasks use"),
        ((NodeConfig(Resources(cpu=4_000), (), "c1.r9"),), "another runner"),
    ],
)
def test_what_would_lose_tasks_is_refused_and_changes_nothing(
    tmp_path: Path, nodes: tuple[NodeConfig, ...], reason: str
) -> None:
    league = busy("c1")
    old = warden_of(league)
    state = live(tmp_path, old, league.events)
    with pytest.raises(LeagueError, match=reason):
        recover(tmp_path, changed(old, nodes=nodes))
    assert come_back(tmp_path, old).machine.dump() == state


def test_a_broker_goes_on_when_a_cluster_a_broker_and_other_times_come(tmp_path: Path) -> None:
    league = busy("b1")
    old = broker_of(league)
    live(tmp_path, old, league.events)
    new = changed(old, clusters=("c1", "c2"), brokers=("b1", "b2"), timings=Timings(beat=3 * SECOND))
    found = come_back(tmp_path, new)
    assert isinstance(found.machine, Broker)
    assert found.machine.view_state_of("c1").snapshot is not None
    assert found.machine.view_state_of("c2").snapshot is None
    later = live(tmp_path, new, [Booted(league.now + SECOND, 2, 7)])
    assert come_back(tmp_path, new).machine.dump() == later


def test_a_broker_whose_clusters_changed_places_is_refused(tmp_path: Path) -> None:
    league = busy("b1")
    old = broker_of(league)
    live(tmp_path, old, league.events)
    with pytest.raises(LeagueError, match="cluster c1 is no longer at its place"):
        recover(tmp_path, changed(old, clusters=("c2", "c1")))


def test_found_nodes_keep_their_places() -> None:
    def called(name: str, cpu: int) -> NodeConfig:
        return NodeConfig(Resources(cpu=cpu), (("slurm.node", name),))

    known = (called("n1", 1), called("n2", 1))
    assert merge_nodes(known, (called("n0", 1), called("n2", 2))) == (
        known[0],
        called("n2", 2),
        called("n0", 1),
    )
