"""Facts about machines, from what their kernels and drivers said."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.live.hardware.cpu_class import cpu_class
from hanse.live.hardware.cpu_identity import CpuIdentity
from hanse.live.hardware.cpus import parse_size
from hanse.live.hardware.gpus import detect_gpus
from hanse.live.hardware.host_files import HostFiles
from hanse.live.hardware.machine import detect_hardware
from hanse.live.hardware.nvml import ask_nvml
from hanse.model.constraints import attributes_problem
from hanse.model.hardware.devices import AMD as AMD_VENDOR
from hanse.model.hardware.devices import NVIDIA, Device
from hanse.model.hardware.facts import (
    CpuCache,
    CpuFacts,
    DiskFacts,
    HardwareFacts,
    NetworkFacts,
    facts_problem,
)
from tests.live.hardware import recorded


def detected(root: Path, files: dict[str, str]) -> HardwareFacts:
    """The facts of a recorded machine. Its driver's library is not asked."""
    return detect_hardware(HostFiles(recorded.write_host(root, files)), lambda: None)


def test_a_server_of_intel(tmp_path: Path) -> None:
    facts = detected(tmp_path, recorded.intel())
    assert facts.cpu == CpuFacts(
        "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz",
        "intel-cascadelake-2.5GHz-2x2c",
        sockets=2,
        cores=4,
        threads=8,
        numa_nodes=2,
        caches=(
            CpuCache("L1d", 32 << 10),
            CpuCache("L1i", 32 << 10),
            CpuCache("L2", 1 << 20),
            CpuCache("L3", 28_160 << 10),
        ),
    )
    assert facts.memory == 196_608_000 * 1_024
    assert facts.disks == (
        DiskFacts("nvme0n1", 1_875_385_008 * 512),
        DiskFacts("sda", 3_907_029_168 * 512, True, "ST2000NM0055"),
    )
    assert facts.networks == (NetworkFacts("eno1", 25_000), NetworkFacts("eno2", 0))
    assert facts.perf_event_paranoid == -1


def test_gpus_of_nvidia_by_the_files_of_their_driver(tmp_path: Path) -> None:
    host = HostFiles(recorded.write_host(tmp_path, recorded.intel()))
    model = "NVIDIA A100-PCIE-40GB"
    assert detect_gpus(host, lambda: None) == (
        Device("gpu", 0, ("/dev/nvidia1",), model, 0, "GPU-0e11", NVIDIA),
        Device("gpu", 1, ("/dev/nvidia0",), model, 0, "GPU-0e10", NVIDIA),
    )
    assert detect_gpus(host, lambda: (Device(model="of the library"),))[0].model == "of the library"


def test_gpus_of_nvidia_by_their_device_files_alone(tmp_path: Path) -> None:
    files = dict.fromkeys(
        ("dev/nvidia0", "dev/nvidia10", "dev/nvidia2", "dev/nvidiactl", "dev/nvidia-uvm"), ""
    )
    found = detect_gpus(HostFiles(recorded.write_host(tmp_path, files)), lambda: None)
    assert [(gpu.index, gpu.paths) for gpu in found] == [
        (0, ("/dev/nvidia0",)),
        (2, ("/dev/nvidia2",)),
        (10, ("/dev/nvidia10",)),
    ]


def test_a_server_of_amd_with_gpus(tmp_path: Path) -> None:
    facts = detected(tmp_path, recorded.AMD)
    assert facts.cpu.cpu_class == "amd-zen3-3.5GHz-64c"
    assert (facts.cpu.sockets, facts.cpu.cores, facts.cpu.threads) == (1, 64, 64)
    assert facts.gpus == (
        Device(
            "gpu",
            0,
            ("/dev/dri/renderD128", "/dev/dri/card0"),
            "aldebaran",
            68_702_699_520,
            f"GPU-{12345678901234567:016x}",
            AMD_VENDOR,
        ),
        Device("gpu", 1, ("/dev/dri/renderD129",), "aldebaran", 0, "", AMD_VENDOR),
    )
    assert facts.attributes()["gpu_model"] == "aldebaran"


def test_arm_power_and_a_younger_intel(tmp_path: Path) -> None:
    arm = detected(tmp_path / "arm", recorded.ARM)
    assert (arm.cpu.model, arm.cpu.cpu_class) == ("arm neoverse-n1", "arm-neoverse-n1-4c")
    assert (arm.cpu.sockets, arm.cpu.cores, arm.cpu.threads) == (1, 4, 4)
    power = detected(tmp_path / "power", recorded.POWER)
    assert power.cpu.cpu_class == "power9-altivec-supported-2c"
    unknown = detected(tmp_path / "unknown", recorded.UNKNOWN_INTEL)
    assert unknown.cpu.model == "Intel(R) Xeon(R) Processor"
    assert unknown.cpu.cpu_class == "intel-family19-model3-2.1GHz-1c"


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    assert detected(tmp_path, {}) == HardwareFacts()
    assert HardwareFacts().attributes() == {}


def test_the_class_does_not_depend_on_the_present_rate(tmp_path: Path) -> None:
    classes = [
        detected(tmp_path / str(shift), {"proc/cpuinfo": recorded.intel(shift)["proc/cpuinfo"]}).cpu
        for shift in (0, 1)
    ]
    assert classes[0] == classes[1]
    assert classes[0].cpu_class == "intel-cascadelake-2.5GHz-2x2c"


@pytest.mark.parametrize(
    ("stepping", "design"), [(4, "skylake"), (5, "cascadelake"), (7, "cascadelake"), (11, "cooperlake")]
)
def test_one_model_of_intel_is_three_designs(stepping: int, design: str) -> None:
    assert cpu_class(CpuIdentity("x", "intel", 6, 0x55, stepping), 1, 20, 2_500_000) == (
        f"intel-{design}-2.5GHz-20c"
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("32K", 32 << 10), ("12M", 12 << 20), ("7", 7), ("", 0), ("K", 0), ("1X", 0), ("²K", 0)],
)
def test_sizes_of_caches(text: str, size: int) -> None:
    assert parse_size(text) == size


NAMES = sorted({*recorded.intel(), *recorded.AMD, *recorded.ARM})


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_nonsense_in_files_is_no_fault(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Each file is what some machine says, or anything at all, or missing."""
    root = tmp_path_factory.mktemp("host")
    host = recorded.intel() | recorded.AMD | recorded.ARM
    for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=12, unique=True)):
        text = data.draw(st.one_of(st.binary(max_size=40), st.just(host[name].encode()), st.just(b"-5\n")))
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    files = HostFiles(root)
    facts = detect_hardware(files, lambda: None)
    assert facts_problem(facts) is None
    assert attributes_problem(dict(facts.attributes())) is None


FAKE_NVML = r"""
#include <stdio.h>
#include <string.h>
struct memory { unsigned long long total, free, used; };
static int devices[2];
int nvmlInit_v2(void) { %s return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &devices[index]; return 0; }
static int number(void *device) { return (int)((int *)device - devices); }
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = 7u - (unsigned)number(device);
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    memory->total = 40ull << 30;
    return number(device);
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    snprintf(name, size, "A100-%%d", number(device));
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    snprintf(uuid, size, "GPU-%%d", number(device));
    return 0;
}
"""


def fake_nvml(directory: Path, at_init: str = "") -> str:
    """A library with NVIDIA's functions for management."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    source, library = directory / "nvml.c", directory / "libnvidia-ml.so.1"
    source.write_text(FAKE_NVML % at_init)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_gpus_of_nvidia_by_its_library(tmp_path: Path) -> None:
    """The file has the driver's minor number; what one call refuses (the second's memory) is unknown."""
    assert ask_nvml(fake_nvml(tmp_path)) == (
        Device("gpu", 0, ("/dev/nvidia7",), "A100-0", 40 << 30, "GPU-0", NVIDIA),
        Device("gpu", 1, ("/dev/nvidia6",), "A100-1", 0, "GPU-1", NVIDIA),
    )


@pytest.mark.parametrize("fault", ["return 9;", "*(volatile int *)0 = 0;"], ids=["refuses", "crashes"])
def test_a_library_that_fails_is_no_fault_of_ours(tmp_path: Path, fault: str) -> None:
    assert ask_nvml(fake_nvml(tmp_path, fault)) is None


def test_a_missing_library_is_no_fault(tmp_path: Path) -> None:
    assert ask_nvml(str(tmp_path / "missing.so")) is None
