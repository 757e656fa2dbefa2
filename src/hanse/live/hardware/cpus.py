"""CPUs of a machine: model, class, sockets, cores, threads, NUMA nodes and caches."""

from typing import Final

from hanse.live.hardware.cpu_class import cpu_class
from hanse.live.hardware.cpu_identity import identify_cpu, parse_cpuinfo
from hanse.live.hardware.host_files import HostFiles, numbered
from hanse.model.hardware.devices import DEVICE_TEXT_CHARACTERS_MAX
from hanse.model.hardware.facts import PARTS_MAX, CpuCache, CpuFacts

_CPUS: Final = "sys/devices/system/cpu"
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CACHE_TYPES: Final = {"Data": "d", "Instruction": "i"}


def detect_cpus(host: HostFiles) -> CpuFacts:
    """Return the facts about the CPUs. Those that are switched off are not counted."""
    blocks = parse_cpuinfo(host.read("proc/cpuinfo"))
    identity = identify_cpu(blocks)
    sockets, cores, threads = _count_by_topology(host) or count_by_cpuinfo(blocks)
    name = identity.name[:DEVICE_TEXT_CHARACTERS_MAX]
    return CpuFacts(
        name,
        cpu_class(identity, sockets, cores, _nominal_khz(host)),
        sockets,
        cores,
        threads,
        len(numbered(host.entries("sys/devices/system/node"), "node")),
        _caches(host),
    )


def count_by_cpuinfo(blocks: list[dict[str, str]]) -> tuple[int, int, int]:
    """Return sockets, cores and threads as ``/proc/cpuinfo`` has them; a block without numbers of its core is
    a core of its own."""
    threads = [block for block in blocks if "processor" in block]
    sockets = dict.fromkeys(block.get("physical id", "0") for block in threads)
    cores = dict.fromkeys(
        (block.get("physical id", "0"), block.get("core id", f"thread {block['processor']}"))
        for block in threads
    )
    return len(sockets), len(cores), len(threads)


def _count_by_topology(host: HostFiles) -> tuple[int, int, int] | None:
    """Return sockets, cores and threads as ``/sys`` has them; None: it has none."""
    sockets: dict[str, None] = {}
    cores: dict[str, None] = {}
    threads = 0
    for number in numbered(host.entries(_CPUS), "cpu"):
        topology = f"{_CPUS}/cpu{number}/topology"
        siblings = host.read(f"{topology}/core_cpus_list") or host.read(f"{topology}/thread_siblings_list")
        if siblings:  # CPUs that are switched off have none
            threads += 1
            cores[siblings] = None
            sockets[host.read(f"{topology}/physical_package_id")] = None
    return (len(sockets), len(cores), threads) if threads else None


def _nominal_khz(host: HostFiles) -> int:
    rates = f"{_CPUS}/cpu0/cpufreq"
    return host.read_number(f"{rates}/base_frequency") or host.read_number(f"{rates}/cpuinfo_max_freq")


def _caches(host: HostFiles) -> tuple[CpuCache, ...]:
    """Return the caches of the first CPU."""
    place = f"{_CPUS}/cpu0/cache"
    found = []
    for number in numbered(host.entries(place), "index")[:PARTS_MAX]:
        level, size = (
            host.read_number(f"{place}/index{number}/level"),
            host.read(f"{place}/index{number}/size"),
        )
        amount = parse_size(size)
        if level and amount:
            kind = _CACHE_TYPES.get(host.read(f"{place}/index{number}/type"), "")
            found.append(CpuCache(f"L{level}{kind}", amount))
    return tuple(found)


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``1024K``; 0: it is none."""
    number, unit = text[:-1], text[-1:]
    if unit.isascii() and unit.isdecimal():
        number, unit = text, ""
    if not (number.isascii() and number.isdecimal()) or len(number) > 9:
        return 0
    return int(number) * (_UNITS.get(unit, 0) if unit else 1)
