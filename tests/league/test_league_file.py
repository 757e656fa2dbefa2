"""The league file: what it means, and what is said about mistakes."""

from pathlib import Path

import pytest
import yaml

from hanse.league.config import LIVE_TIMINGS, Address, LeagueConfig, LeagueError
from hanse.league.file import load, store
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data
from hanse.model.hardware.devices import Device
from hanse.model.ids import SECOND
from hanse.model.problem import Problem
from hanse.model.resources import Resources

WHOLE = """
league: harbour
timings: {beat: 2s, suspect_after: 6s}
policy: {order: fifo, placer: spread}
brokers:
  - {name: b1, address: "10.0.0.1:7401", door: "[::1]:7402"}
  - {name: b2}
clusters:
  - name: north
    address: "10.0.0.1:7411"
    backend: {kind: process, sandbox: bwrap, user: www-data, output: 1MiB, limits: rlimit}
    reserve: 1
    runners: [{name: far, address: "10.0.0.2:7413"}]
    nodes:
      - {count: 2, cpus: 1.5, memory: 1GiB, attributes: {zone: a, disk: 100, fast: true}}
      - {cpus: 8, memory: 32GiB, gpus: 2, resources: {fpga: 1}, runner: far}
  - {name: south, backend: "null", nodes: [{}]}
"""


def whole() -> LeagueConfig:
    league = league_from_data(yaml.safe_load(WHOLE))
    assert isinstance(league, LeagueConfig), league
    return league


def test_every_field_means_what_it_says() -> None:
    league = whole()
    north, south = league.clusters
    assert league.timings.beat == 2 * SECOND
    assert league.timings.cluster_lease == LIVE_TIMINGS.cluster_lease
    assert league.policy.order == "fifo"
    assert league.brokers[0].door == Address("::1", 7402)
    assert league.brokers[1].address.port == 0
    assert len(north.nodes) == 3
    assert north.nodes[0] == north.nodes[1]
    assert north.nodes[0].capacity == Resources(cpu=1_500, memory=1 << 30)
    assert dict(north.nodes[0].attributes) == {"zone": "a", "disk": 100, "fast": True}
    assert north.nodes[0].runner == "north/runner"
    assert north.nodes[2].runner == "far"
    assert north.nodes[2].capacity == Resources(8_000, 32 << 30, 2, (("fpga", 1),))
    assert (north.backend.sandbox, north.backend.output, north.reserve) == ("bwrap", 1 << 20, 1)
    assert south.backend.kind == "null"
    assert league.members() == ["b1", "b2", "north", "south", "far"]


def test_machines_are_told_what_the_file_says() -> None:
    league = whole()
    assert league.broker_config("b2").number == 2
    assert league.broker_config("b2").clusters == ("north", "south")
    assert league.warden_config("north").reserve == 1
    cluster, runner = league.cluster_of_runner("far")
    assert league.runner_config(cluster, runner.name).nodes == (2,)
    assert league.runner_config(cluster, cluster.own_runner).nodes == (0, 1)


def test_what_is_stored_reads_back_the_same(tmp_path: Path) -> None:
    league = whole()
    store(tmp_path / "league.yaml", league)
    assert load(tmp_path / "league.yaml") == league
    assert league_from_data(league_to_data(league)) == league


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ("brokers: []", "brokers", "1 to"),
        ("brokers: [{name: a b}]", "brokers[0].name", "letters"),
        ("brokers: [{}]", "brokers[0].name", "missing"),
        ('brokers: [{name: x, address: "nowhere"}]', "brokers[0].address", "host:port"),
        ('brokers: [{name: x, address: "h:99999"}]', "brokers[0].address", "host:port"),
        ("brokers: [{name: north}]", "", "two members are called 'north'"),
        ("policy: {order: best}", "policy.order", "one of"),
        ("policy: {node_ranker: random}", "policy.node_ranker", "one of"),
        ("timings: {beats: 1s}", "timings.beats", "beat"),
        ("timings: {beat: fast}", "timings.beat", "time"),
        ("clusters: [{name: c, nodes: []}]", "clusters[0].nodes", "1 to"),
        ("clusters: [{name: c, nodes: [{cpus: -1}]}]", "clusters[0].nodes[0].cpus", "CPUs"),
        ("clusters: [{name: c, nodes: [{count: 0}]}]", "clusters[0].nodes[0].count", "1 to"),
        ("clusters: [{name: c, nodes: [{runner: r}]}]", "clusters[0].nodes[0].runner", "no runner"),
        ("clusters: [{name: c, reserve: 2, nodes: [{}]}]", "clusters[0].reserve", "only 1"),
        ("clusters: [{name: c, backend: docker, nodes: [{}]}]", "clusters[0].backend.kind", "one of"),
        ("clusters: [{name: c, nodes: [{attributes: {a: 1.5}}]}]", "clusters[0].nodes[0].attributes.a",
         "whole"),
        ("leage: x", "leage", "league"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(change: str, field: str, says: str) -> None:
    problems = league_from_data({**yaml.safe_load(WHOLE), **yaml.safe_load(change)})
    assert isinstance(problems, tuple)
    assert any(problem.field == field and says in problem.rule for problem in problems), problems


def test_a_file_that_is_not_yaml_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "league.yaml"
    path.write_text("brokers: [", encoding="utf-8")
    with pytest.raises(LeagueError, match="is not YAML"):
        load(path)


def test_who_is_not_a_member_is_told_who_is() -> None:
    with pytest.raises(LeagueError, match="there are: north, south"):
        whole().cluster("west")


# --- devices ---------------------------------------------------------------------------------------------


def with_nodes(*nodes: dict[str, object]) -> LeagueConfig | tuple[Problem, ...]:
    """A league whose one cluster has these nodes, two of them on another machine."""
    runners = [{"name": "north-2"}]
    cluster = {"name": "north", "runners": runners, "nodes": list(nodes)}
    return league_from_data({"brokers": [{"name": "b1"}], "clusters": [cluster]})


DEVICES: list[object] = [
    {"kind": "gpu", "path": "/dev/nvidia0", "model": "A100", "memory": "40GiB"},
    {"kind": "gpu", "index": 3, "uuid": "GPU-1"},
    {"kind": "fpga", "path": "/dev/fpga0"},
    {"kind": "gpu", "path": "/dev/dri/renderD128", "index": 7},
]


def test_devices_are_counted_and_keep_their_words() -> None:
    league = with_nodes({"devices": DEVICES, "resources": {"fpga": 1, "licence": 2}})
    assert isinstance(league, LeagueConfig)
    (node,) = league.clusters[0].nodes
    assert (node.capacity.gpu, node.capacity.custom) == (3, (("fpga", 1), ("licence", 2)))
    assert node.devices == (
        Device("gpu", 0, ("/dev/nvidia0",), "A100", 40 << 30),
        Device("gpu", 3, (), uuid="GPU-1"),
        Device("fpga", 0, ("/dev/fpga0",)),
        Device("gpu", 7, ("/dev/dri/renderD128",), vendor="amd"),
    )
    again = league_from_data(league_to_data(league))
    assert again == league


@pytest.mark.parametrize(
    ("nodes", "field", "words"),
    [
        ([{"devices": DEVICES, "gpus": 2}], "[0].gpus", "both must be equal"),
        ([{"devices": DEVICES, "resources": {"fpga": 2}}], "[0].resources", "equal"),
        ([{"devices": DEVICES, "count": 2}], "[0].count", "one by one"),
        ([{"devices": [{"path": "/dev/x"}]}], "[0].devices[0].kind", "missing"),
        ([{"devices": [{"kind": "A b"}]}], "[0].devices[0].kind", "small letters"),
        ([{"devices": [{"kind": "memory"}]}], "[0].devices[0].kind", "a kind is"),
        ([{"devices": [{"kind": "gpu", "path": "dev/x"}]}], "[0].devices[0].path", "absolute"),
        ([{"devices": [{"kind": "gpu", "path": "/a/../x"}]}], "[0].devices[0].path", "absolute"),
        ([{"devices": [{"kind": "a"}, {"kind": "a", "index": 0}]}], "[0].devices[1]", "index 0"),
        ([{"devices": {"kind": "a"}}], "[0].devices", "a list of at most"),
        ([{"devices": DEVICES}, {"devices": DEVICES[:1]}], "", "both list /dev/nvidia0"),
    ],
)  # fmt: skip
def test_devices_that_cannot_be_are_refused(nodes: list[dict[str, object]], field: str, words: str) -> None:
    found = with_nodes(*nodes)
    assert not isinstance(found, LeagueConfig)
    assert found[0].field == f"clusters[0].nodes{field}"
    assert words in found[0].rule


def test_nodes_of_two_machines_may_list_the_same_files() -> None:
    assert isinstance(
        with_nodes({"devices": DEVICES}, {"devices": DEVICES, "runner": "north-2"}), LeagueConfig
    )
