"""World files: round trip, defaults, refusals."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings

from hanse.sim.worlds.presets import PRESETS, make_preset
from hanse.sim.worlds.world import NodeClass, World, WorldError
from hanse.sim.worlds.world_file import parse_world, read_world, world_to_text, write_world
from tests.sim.worlds.toy_worlds import toy_world, worlds

SMALL = """\
world: small
work_kinds: [{name: compute}]
node_classes: [{name: old, cores: 16, memory: 64GiB}]
clusters: [{name: north, region: FI, nodes: [{class: old, count: 12}]}]
"""


def parse(text: str, **changes: str) -> World:
    for before, after in changes.items():
        text = text.replace(before, after)
    return parse_world(text.encode(), "small.yaml")


def refusal(text: str) -> str:
    with pytest.raises(WorldError) as caught:
        parse_world(text.encode(), "small.yaml")
    return str(caught.value)


@settings(deadline=None, max_examples=60)
@given(worlds())
def test_what_is_written_is_read_back_as_the_same_world(world: World) -> None:
    assert parse_world(world_to_text(world).encode(), "x") == world


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    write_world(tmp_path / "toy.yaml", toy_world())
    assert read_world(tmp_path / "toy.yaml") == toy_world()


def test_a_generated_file_pins_figures_that_are_defaults() -> None:
    data = yaml.safe_load(world_to_text(make_preset("eight", 0)))
    assert data["work"]["horizon"] == "20m"
    assert data["interference"] == {"knee": 0.3, "slope": 0.95}
    assert data["network"]["rack_flow"] == "400MB/s"


def test_left_out_fields_have_the_defaults_of_the_records() -> None:
    world = parse(SMALL)
    assert world.node_classes == (NodeClass(name="old", cores=16, memory=64 << 30),)
    assert world.network.wan_window == 4_000_000
    assert world.data.replicas == 2


def test_rates_are_in_bytes_or_bits() -> None:
    text = SMALL.replace("nodes:", "wan: 10Gb/s, nodes:")
    assert parse(text).clusters[0].wan == 1_250_000_000
    assert parse(text.replace("10Gb/s", "1.5GB/s")).clusters[0].wan == 1_500_000_000
    assert "the unit 'Gx' is unknown" in refusal(text.replace("10Gb/s", "10Gx/s"))
    assert 'a rate is a text such as "105GB/s"' in refusal(text.replace("10Gb/s", "10"))
    assert "whole bytes per second" in refusal(text.replace("10Gb/s", "0.3B/s"))


REFUSALS = [
    ("cores: 16", "cors: 16", "node_classes[0].cors: there is no field 'cors' here (did you mean 'cores'?)"),
    ("cores: 16, ", "", "node_classes[0].cores: this is required; for example: cores: 48"),
    ("cores: 16", "cores: 0", "node_classes[0].cores: this is a whole number from 1 to 4,096, not 0"),
    ("memory: 64GiB", "memory: much", "node_classes[0].memory: memory is a number of bytes"),
    ("class: old", "class: odl", "clusters[0].nodes: there is no node class 'odl' (did you mean 'old'?)"),
    ("count: 12", "count: 0", "clusters[0].nodes[0].count: this is a whole number from 1"),
    ("region: FI", "region: NO", "clusters[0].region: this is a text, not false (put it in quotes)"),
    ("{name: compute}", "{name: compute, share: -1}", "work_kinds[0].share: this is a number from"),
    ("{name: compute}", "{name: compute, share: 0}", "work_kinds: at least one kind has a share above 0"),
    ("{name: compute}", "{name: compute, cores: [64]}", "work_kinds[0].cores: a task of compute with 64"),
    ("{name: compute}", "{name: compute, gpus: 1}", "fits no node that it may use"),
    ("{name: compute}", "{name: compute, requires: zone = a}", "work_kinds[0].requires: "),
    ("{name: compute}", '{name: compute, requires: zone == "a"}', "no node satisfies 'zone == \"a\"'"),
    ("{name: compute}", "{name: a}, {name: a}", "work_kinds[1].name: 'a' is the name of work_kinds[0], too"),
    ("memory: 64GiB", "memory: 64GiB, speed: {etl: 1}", "[0].speed: there is no kind of work 'etl'"),
    ("memory: 64GiB", "memory: 64GiB, speed: {compute: 0}", "speed.compute: this is a number from 0.01"),
    ("memory: 64GiB", "memory: 64GiB, gpus: 2", "old has GPUs, so it says of which kind"),
    ("world: small", "world: small\ndata: {replicas: 5}", "data.replicas: this is a whole number"),
    ("world: small", "world: small\nwork: {task_least: 1h}", "the least work of a task is more than the"),
    ("world: small", "world: small\nwork: {gangs: {topology: pod}}", "gangs.topology: this is one of"),
    ("world: small", "world: small\nwork: {deadlines: {slack_least: 9}}", "the least slack is more than"),
    ("world: small", "world: small\nfailures: 3", "failures: this is a mapping with fields such as"),
    ("world: small", "world: [", "small.yaml is not YAML"),
    ("clusters: [", "clusters: [{name: x, nodes: [{class: old, count: 1}]}, ", "the region 'x' is unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "sentence"), REFUSALS, ids=[row[1][:40] for row in REFUSALS])
def test_a_refusal_names_the_place_and_what_is_allowed(before: str, after: str, sentence: str) -> None:
    assert before in SMALL
    found = refusal(SMALL.replace(before, after))
    assert sentence in found
    assert found.startswith("small.yaml ")


@pytest.mark.parametrize(
    ("trips", "sentence"),
    [
        ("regions: [FI, FI], milliseconds: [[1, 2], [2, 1]]", "every region stands here once"),
        ("regions: [FI], milliseconds: [[1, 2]]", "this has 1 rows of 1 numbers"),
        ("regions: [DE], milliseconds: [[1]]", "there is no region 'FI'"),
        ("milliseconds: [[1]]", "this lists the regions"),
        ("regions: [FI, DE], milliseconds: [[1, 0], [2, 1]]", "is more than 0"),
        ("regions: [FI], milliseconds: [[a]]", "milliseconds[0][0]: this is a number"),
        ("regions: [FI], milliseconds: [1]", "this is a list of lists"),
        ("file: x.csv, regions: [FI]", "with a file, no other field may stand here"),
    ],
)
def test_round_trips_that_are_incomplete_are_refused(trips: str, sentence: str) -> None:
    assert sentence in refusal(f"{SMALL}network: {{round_trips: {{{trips}}}}}\n")


def test_round_trips_come_from_a_file_beside_the_world(tmp_path: Path) -> None:
    (tmp_path / "ms.csv").write_text("origin,FI,DE,DE\nFI,1,20.5,9\nDE,22,2,9\nDE,9,9,9\n", encoding="utf-8")
    text = SMALL.replace("[{name: north", "[{name: DE, nodes: [{class: old, count: 1}]}, {name: north")
    path = tmp_path / "world.yaml"
    path.write_text(f"{text}network: {{round_trips: {{file: ms.csv}}}}\n", encoding="utf-8")
    world = read_world(path)
    trips = world.network.round_trips
    assert (trips.origin, trips.regions, trips.matrix) == (
        "ms.csv",
        ("DE", "FI"),
        ((2_000, 22_000), (20_500, 1_000)),
    )
    write_world(path, world)
    (tmp_path / "ms.csv").unlink()
    assert read_world(path) == world, "a written file needs no other"
    path.write_text(f"{text}network: {{round_trips: {{file: gone.csv}}}}\n", encoding="utf-8")
    with pytest.raises(WorldError, match=r"gone\.csv: the latencies cannot be read"):
        read_world(path)


def test_a_file_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="the world file cannot be read: No such file"):
        read_world(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_survive_their_file(name: str) -> None:
    world = make_preset(name, 5)
    assert parse_world(world_to_text(world).encode(), "x") == world
