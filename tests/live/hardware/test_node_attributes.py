"""Attributes of nodes from hardware, and what a warden keeps of what its runners report."""

from pathlib import Path

import msgspec

from hanse.core.config import NodeConfig
from hanse.league.config import Address, BackendEntry, ClusterEntry
from hanse.live.hardware.hardware_reports import HARDWARE_FILE, HardwareReports
from hanse.live.hardware.node_attributes import with_detected_attributes
from hanse.model.hardware.devices import Device
from hanse.model.hardware.facts import CpuFacts, HardwareFacts
from hanse.model.resources import Resources

FACTS = HardwareFacts(
    CpuFacts("Xeon", "intel-haswell-16c"), gpus=(Device(model="A100"), Device(model="A100"))
)


def cluster(*nodes: NodeConfig, kind: str = "process") -> ClusterEntry:
    return ClusterEntry("north", Address(), Address(), nodes, BackendEntry(kind))


def attributes(node: NodeConfig, facts: HardwareFacts = FACTS) -> dict[str, object]:
    (found,) = with_detected_attributes(cluster(node), {"r": facts}).nodes
    return dict(found.attributes)


def test_what_the_league_file_says_stands() -> None:
    node = NodeConfig(Resources(gpu=1), (("cpu_class", "mine"), ("zone", "a")), "r")
    assert attributes(node) == {"cpu_class": "mine", "cpu_model": "Xeon", "gpu_model": "A100", "zone": "a"}


def test_a_node_without_gpus_has_no_model_of_one() -> None:
    assert attributes(NodeConfig(Resources(), (), "r")) == {
        "cpu_class": "intel-haswell-16c",
        "cpu_model": "Xeon",
    }


def test_the_model_of_listed_gpus_is_theirs() -> None:
    node = NodeConfig(Resources(gpu=1), (), "r", devices=(Device(model="T4"), Device("fpga", model="X")))
    assert attributes(node)["gpu_model"] == "T4"
    mixed = msgspec.structs.replace(FACTS, gpus=(Device(model="T4"), Device(model="A100")))
    assert "gpu_model" not in attributes(NodeConfig(Resources(gpu=1), (), "r"), mixed)


def test_nodes_of_unknown_machines_are_left_alone() -> None:
    far = cluster(NodeConfig(Resources(), (), "far"))
    assert with_detected_attributes(far, {"r": FACTS}) is far
    foreign = cluster(NodeConfig(Resources(), (), "r"), kind="slurm")
    assert with_detected_attributes(foreign, {"r": FACTS}) is foreign


def test_reports_outlive_the_warden(tmp_path: Path) -> None:
    reports = HardwareReports(tmp_path)
    reports.note("far", FACTS)
    assert HardwareReports(tmp_path).by_runner == {"far": FACTS}
    written = (tmp_path / HARDWARE_FILE).stat().st_mtime_ns
    reports.note("far", FACTS)
    assert (tmp_path / HARDWARE_FILE).stat().st_mtime_ns == written
    (tmp_path / HARDWARE_FILE).write_text("nonsense")
    assert HardwareReports(tmp_path).by_runner == {}
