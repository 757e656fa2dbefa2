"""Detection of all facts about this machine."""

from collections.abc import Callable
from functools import cache

from hanse.live.hardware.cpus import detect_cpus
from hanse.live.hardware.disks_and_networks import detect_disks, detect_networks, parse_memory
from hanse.live.hardware.gpus import detect_gpus
from hanse.live.hardware.host_files import HostFiles
from hanse.live.hardware.nvml import ask_nvml
from hanse.model.hardware.devices import Device
from hanse.model.hardware.facts import HardwareFacts, facts_problem


def detect_hardware(
    host: HostFiles | None = None, ask: Callable[[], tuple[Device, ...] | None] = ask_nvml
) -> HardwareFacts:
    """Return the facts; ``ask`` asks NVIDIA's library. Takes milliseconds; with a driver of NVIDIA about a
    second, ``nvml.ASK_SECONDS_MAX`` at most."""
    host = host or HostFiles()
    level = host.read("proc/sys/kernel/perf_event_paranoid")
    facts = HardwareFacts(
        detect_cpus(host),
        parse_memory(host.read("proc/meminfo")),
        detect_disks(host),
        detect_networks(host),
        detect_gpus(host, ask),
        int(level) if level.lstrip("-").isdecimal() and len(level) < 4 else None,
    )
    return facts if facts_problem(facts) is None else HardwareFacts()


@cache
def this_machine() -> HardwareFacts:
    """Return the facts about this machine, detected once in the life of this process."""
    return detect_hardware()
