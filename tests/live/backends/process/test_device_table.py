"""Which devices a runner has, who gets which, and what a task is told of them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.core.config import NodeConfig
from hanse.live.backends.process.devices.device_claims import claim_devices
from hanse.live.backends.process.devices.device_environment import NO_GPUS, device_variables
from hanse.live.backends.process.devices.device_plan import (
    DevicePlan,
    SharedDeviceError,
    amount_of,
    plan_devices,
)
from hanse.live.backends.process.devices.device_table import DeviceTable
from hanse.live.backends.process.kept_outputs import AttemptId
from hanse.live.backends.process.withheld_capacity import WithheldCapacity
from hanse.model.hardware.devices import AMD, NVIDIA, Device
from hanse.model.resources import Resources
from tests.live.backends.desk import task

FOUND = tuple(
    Device("gpu", index, (f"/dev/nvidia{index}",), "A100", 40 << 30, f"GPU-{index}", NVIDIA)
    for index in range(4)
)
SMALL = Resources(cpu=4_000, memory=1 << 30)


def node(gpus: int = 0, *devices: Device, runner: str = "r", **custom: int) -> NodeConfig:
    amounts = Resources(SMALL.cpu, SMALL.memory, gpus, tuple(sorted(custom.items())))
    return NodeConfig(amounts, runner=runner, devices=devices)


def there(_: str) -> bool:
    return True


def plan(*nodes: NodeConfig, gpus: tuple[Device, ...] = FOUND, missing: tuple[str, ...] = ()) -> DevicePlan:
    return plan_devices(nodes, gpus, "r", lambda path: path not in missing)


# --- the plan --------------------------------------------------------------------------------------------


def test_gpus_are_taken_from_those_that_were_found_in_the_order_of_the_nodes() -> None:
    found = plan(node(1), node(0), node(2), node(9, runner="elsewhere"))
    assert found.by_node == {0: FOUND[:1], 2: FOUND[1:3]}
    assert (found.missing, found.warnings) == ({}, ())
    assert set(found.fenced) == {f"/dev/nvidia{index}" for index in range(4)}  # the last one is nobody's


def test_listed_gpus_are_not_given_twice_and_are_completed() -> None:
    listed = Device("gpu", 0, ("/dev/nvidia2",), model="mine")
    found = plan(node(1, listed), node(2))
    assert found.by_node == {
        0: (Device("gpu", 2, ("/dev/nvidia2",), "mine", 40 << 30, "GPU-2", NVIDIA),),
        1: FOUND[:2],
    }
    by_index = plan(node(1, Device("gpu", 3)))
    assert by_index.by_node == {0: FOUND[3:]}


def test_gpus_that_are_not_there_are_withheld() -> None:
    found = plan(node(6))
    assert (found.by_node, amount_of(found.missing[0])) == ({0: FOUND}, Resources(gpu=2))
    assert "6 GPUs in the league file, and 4 were found" in found.warnings[0]
    listed = plan(node(1, Device("gpu", 0, ("/dev/x",)), Device("fpga", 0, ("/dev/y",))), missing=("/dev/y",))
    assert (listed.by_node[0], listed.missing[0]) == (
        (Device("gpu", 0, ("/dev/x",)),),
        (Device("fpga", 0, ("/dev/y",)),),
    )
    assert "/dev/y is missing" in listed.warnings[0]


def test_gpus_are_only_counted_where_none_was_found() -> None:
    found = plan(node(2), gpus=())
    assert not found.has_devices
    assert "counted and not assigned" in found.warnings[0]
    assert plan(node(0), gpus=FOUND) == DevicePlan()  # its GPUs are not the league's, and are left alone


def test_two_names_of_one_device_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    first, second = (Device("fpga", index, (str(tmp_path / name),)) for index, name in enumerate("ab"))
    with pytest.raises(SharedDeviceError, match="the same device"):
        plan_devices((node(0, first, fpga=1), node(0, second, fpga=1)))
    zero = (Device("a", 0, ("/dev/zero",)), Device("b", 0, ("/dev/null",)))
    assert plan_devices((node(0, *zero),)).by_node == {0: zero}


# --- claims ----------------------------------------------------------------------------------------------


def test_a_device_of_another_runner_is_withheld(tmp_path: Path) -> None:
    claims, first, second = tmp_path / "claims", tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    four, two = plan(node(4)), plan(node(2))
    assert claim_devices(two, first, claims) == two
    other = claim_devices(four, second, claims)
    assert (other.by_node, other.missing) == ({0: FOUND[2:]}, {0: FOUND[:2]})
    assert f"the runner of {first} has it" in other.warnings[0]
    assert claim_devices(four, first, claims).by_node == {0: FOUND[:2]}  # its own, and not the other's
    assert claim_devices(plan(node(0)), first, claims) == DevicePlan()  # started without devices
    assert claim_devices(four, second, claims) == four
    second.rmdir()
    assert claim_devices(four, first, claims) == four


def test_claims_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = claim_devices(plan(node(4)), tmp_path, tmp_path / "file" / "claims")
    assert found.by_node == {0: FOUND}
    assert "other runners of this machine" in found.warnings[0]
    assert claim_devices(DevicePlan(), tmp_path, tmp_path / "none") == DevicePlan()
    assert not (tmp_path / "none").exists()


# --- the table -------------------------------------------------------------------------------------------


class Withheld:
    """Hears what a table withholds."""

    def __init__(self) -> None:
        self.amounts: dict[int, Resources] = {}

    def note(self, node: int, amount: Resources) -> None:
        self.amounts[node] = amount


def key(index: int) -> AttemptId:
    return task(index), 1


def table(*nodes: NodeConfig) -> tuple[DeviceTable, Withheld]:
    withheld = Withheld()
    return DeviceTable(plan_devices(nodes, FOUND, exists=there), withheld.note), withheld


def test_the_lowest_free_index_comes_first() -> None:
    devices, _ = table(node(4))
    two = Resources(gpu=2)
    assert devices.assign(key(0), 0, two) == FOUND[:2]
    assert devices.assign(key(1), 0, Resources(gpu=1)) == FOUND[2:3]
    assert devices.assign(key(2), 0, two) is None
    devices.release(key(0))
    assert devices.assign(key(2), 0, Resources(gpu=1)) == FOUND[:1]
    assert [holder for _, holder in devices.uses(0)] == [task(2), None, task(1), None]


def test_kinds_that_are_not_listed_are_counted_by_the_league_alone() -> None:
    devices, _ = table(node(0, Device("fpga", 0, ("/dev/f",)), fpga=1, licence=3))
    assert devices.assign(key(0), 0, Resources(gpu=0, custom=(("licence", 3),))) == ()
    assert devices.assign(key(1), 0, Resources(custom=(("fpga", 1),))) == (Device("fpga", 0, ("/dev/f",)),)
    assert devices.assign(key(2), 7, Resources(gpu=1)) == ()


def test_devices_of_what_cannot_be_killed_stay_taken_and_are_withheld() -> None:
    devices, withheld = table(node(4))
    devices.assign(key(0), 0, Resources(gpu=2))
    devices.release(key(0), is_gone=False)
    assert withheld.amounts == {0: Resources(gpu=2)}
    assert devices.assign(key(1), 0, Resources(gpu=2)) == FOUND[2:]


def test_a_disk_that_is_full_and_devices_are_withheld_together() -> None:
    withheld, room = WithheldCapacity(), Withheld()

    class Runner:
        def on_attempt_started(self, task: object, attempt: int) -> None: ...

        def on_attempt_ended(self, end: object) -> None: ...

        def on_capacity_withheld(self, node: int, amount: Resources) -> None:
            room.note(node, amount)

    withheld.listener = Runner()
    withheld.on_devices_withheld(0, Resources(gpu=1))
    assert room.amounts == {0: Resources(gpu=1)}
    withheld.on_capacity_withheld(0, SMALL)
    assert room.amounts == {0: SMALL}
    withheld.on_devices_withheld(0, Resources(gpu=2))
    assert room.amounts == {0: SMALL}
    withheld.on_capacity_withheld(0, Resources())
    assert room.amounts == {0: Resources(gpu=2)}


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=60)
)
def test_no_device_has_two_attempts(steps: list[tuple[int, int, int, bool]]) -> None:
    """Starts and ends in any order, and now and then another daemon, which learns from records."""
    nodes = (node(2), node(1, Device("fpga", 0, ("/dev/f",)), Device("gpu", 3), fpga=1), node(0))
    devices, _ = table(*nodes)
    held: dict[AttemptId, tuple[str, ...]] = {}
    for index, place, amount, restarts in steps:
        one = key(index)
        if restarts:
            devices, _ = table(*nodes)
            for other, names in held.items():
                devices.restore(other, names)
        if one in held:
            devices.release(one)
            del held[one]
            continue
        found = devices.assign(one, place, Resources(gpu=amount % 3, custom=(("fpga", amount // 3),)))
        if found is None:
            continue
        held[one] = devices.names_of(one)
        assert len(found) == len(held[one])
        taken = [name for names in held.values() for name in names]
        assert len(taken) == len(set(taken))


# --- the variables ---------------------------------------------------------------------------------------


def amd(index: int) -> Device:
    return Device("gpu", index, (f"/dev/dri/renderD{128 + index}",), vendor=AMD)


def test_a_task_with_gpus_of_nvidia() -> None:
    assert device_variables(FOUND[1:3], FOUND) == {
        "HANSE_DEVICES": "/dev/nvidia1,/dev/nvidia2",
        "HANSE_DEVICES_GPU": "/dev/nvidia1,/dev/nvidia2",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "ROCR_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "-1",
    }
    plain = Device("gpu", 3, ("/dev/nvidia3",))
    env = device_variables((plain,), (plain,))
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("3", "PCI_BUS_ID")


def test_a_task_with_gpus_of_amd() -> None:
    """HIP counts what the runtime below it has left from 0 on, and looks at CUDA's variable, too."""
    env = device_variables((amd(1), amd(3)), tuple(map(amd, range(4))))
    assert env["ROCR_VISIBLE_DEVICES"] == "1,3"
    assert env["HIP_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_task_without_gpus_sees_none() -> None:
    env = device_variables((), FOUND)
    assert env == {"HANSE_DEVICES": "", "HANSE_DEVICES_GPU": "", **NO_GPUS}
    assert device_variables((), ()) == {}


def test_devices_of_other_kinds() -> None:
    fpga, licence = Device("fpga", 0, ("/dev/f",)), Device("licence", 4)
    assert device_variables((fpga, licence), (fpga, licence)) == {
        "HANSE_DEVICES": "/dev/f",
        "HANSE_DEVICES_FPGA": "/dev/f",
        "HANSE_DEVICES_LICENCE": "4",
    }
