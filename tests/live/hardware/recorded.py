"""What kernels and drivers of several machines say, shortened to what is read."""

from pathlib import Path


def write_host(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def _intel_block(processor: int, socket: int, core: int) -> str:
    return (
        f"processor\t: {processor}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
        "model name\t: Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz\nstepping\t: 7\n"
        f"cpu MHz\t\t: {1000 + processor}.000\ncache size\t: 28160 KB\nphysical id\t: {socket}\n"
        f"siblings\t: 4\ncore id\t\t: {core}\ncpu cores\t: 2\n"
    )


def intel(mhz_shift: int = 0) -> dict[str, str]:
    """A server: two sockets of two cores with two threads each, two disks, two GPUs."""
    places = [(0, 0), (0, 1), (1, 0), (1, 1)] * 2
    blocks = [_intel_block(number, *place) for number, place in enumerate(places)]
    files = {
        "proc/cpuinfo": "\n".join(blocks).replace("MHz\t\t: 1", f"MHz\t\t: {1 + mhz_shift}"),
        "proc/meminfo": "MemTotal:       196608000 kB\nMemFree:        1000 kB\n",
        "proc/sys/kernel/perf_event_paranoid": "-1\n",
        "sys/block/sda/size": "3907029168\n",
        "sys/block/sda/queue/rotational": "1\n",
        "sys/block/sda/device/model": "ST2000NM0055    \n",
        "sys/block/nvme0n1/size": "1875385008\n",
        "sys/block/nvme0n1/queue/rotational": "0\n",
        "sys/block/loop0/size": "100\n",
        "sys/block/dm-0/size": "100\n",
        "sys/block/sr0/size": "0\n",
        "sys/class/net/lo/mtu": "65536\n",
        "sys/class/net/eno1/speed": "25000\n",
        "sys/class/net/eno1/device/vendor": "0x8086\n",
        "sys/class/net/eno2/speed": "-1\n",
        "sys/class/net/eno2/device/vendor": "0x8086\n",
        "sys/class/net/docker0/mtu": "1500\n",
    }
    for number, (socket, core) in enumerate(places):
        topology = f"sys/devices/system/cpu/cpu{number}/topology"
        files[f"{topology}/physical_package_id"] = f"{socket}\n"
        files[f"{topology}/core_id"] = f"{core}\n"
        files[f"{topology}/thread_siblings_list"] = f"{number % 4},{number % 4 + 4}\n"
    files["sys/devices/system/cpu/cpu8/online"] = "0\n"
    files["sys/devices/system/cpu/cpufreq/policy0/x"] = ""
    for node in range(2):
        files[f"sys/devices/system/node/node{node}/cpulist"] = "0\n"
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "32K"), (1, "Instruction", "32K"), (2, "Unified", "1024K"), (3, "Unified", "28160K")]
    ):
        place = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {f"{place}/level": f"{level}\n", f"{place}/type": f"{kind}\n", f"{place}/size": f"{size}\n"}
    for place, minor in (("0000:3b:00.0", 1), ("0000:af:00.0", 0)):
        files[f"proc/driver/nvidia/gpus/{place}/information"] = (
            "Model: \t\t NVIDIA A100-PCIE-40GB\nIRQ:   \t\t 137\n"
            f"GPU UUID: \t GPU-0e1{minor}\nVideo BIOS: \t 92.00.25.00.08\nBus Type: \t PCIe\n"
            f"Device Minor: \t {minor}\nGPU Excluded:\t No\n"
        )
    return files


AMD = {
    "proc/cpuinfo": "".join(
        f"processor\t: {number}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n"
        "model name\t: AMD EPYC 7763 64-Core Processor\nstepping\t: 1\nphysical id\t: 0\n"
        f"core id\t\t: {number}\n\n"
        for number in range(64)
    ),
    "proc/meminfo": "MemTotal:       527988000 kB\n",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3529052\n",
    "sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n",
    "sys/class/kfd/kfd/topology/nodes/0/name": "\n",
    "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "51110\n",
    "sys/class/kfd/kfd/topology/nodes/1/name": "aldebaran\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 440\nvendor_id 4098\ndrm_render_minor 128\n"
    "unique_id 12345678901234567\n",
    "sys/class/kfd/kfd/topology/nodes/2/gpu_id": "7\n",
    "sys/class/kfd/kfd/topology/nodes/2/name": "aldebaran\n",
    "sys/class/kfd/kfd/topology/nodes/2/properties": "drm_render_minor 129\n",
    "sys/class/drm/renderD128/device/mem_info_vram_total": "68702699520\n",
    "sys/class/drm/renderD128/device/drm/card0/dev": "226:0\n",
    "sys/class/drm/renderD128/device/drm/renderD128/dev": "226:128\n",
}
"""A socket of 64 cores without ``/sys``'s topology, with two GPUs."""

ARM = {
    "proc/cpuinfo": "".join(
        f"processor\t: {number}\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
        for number in range(4)
    ),
    "proc/meminfo": "MemTotal:        7979048 kB\n",
}
"""Four vCPUs of Neoverse N1, as some clouds rent them."""

POWER = {
    "proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3783.000000MHz\n\n"
    "processor\t: 1\ncpu\t\t: POWER9, altivec supported\n\nplatform\t: PowerNV\n",
}
UNKNOWN_INTEL = {
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 19\nmodel\t\t: 3\n"
    "model name\t: Intel(R)  Xeon(R)   Processor\nphysical id\t: 0\ncore id\t\t: 0\n",
    "sys/devices/system/cpu/cpu0/cpufreq/base_frequency": "2100000\n",
}
"""A virtual machine on a CPU younger than the tables."""
