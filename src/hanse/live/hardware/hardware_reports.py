"""Reports of hardware by the runners of a cluster, kept in a file of its warden.

Nodes have their attributes from the warden's start on. So what a runner on another machine reports for the
first time becomes attributes of its nodes at the warden's next start; commands show it at once.
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.telemetry.json_logs import log_fields
from hanse.model.hardware.facts import HardwareFacts
from hanse.security.atomic_files import PRIVATE, replace

HARDWARE_FILE: Final = "hardware.json"
log = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(dict[str, HardwareFacts]).decode


class HardwareReports:
    """Latest report of each runner."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / HARDWARE_FILE
        self.by_runner = _read(self._path)

    def note(self, runner: str, facts: HardwareFacts) -> None:
        """Keep a report, if it is news. A file that cannot be written is a lesser evil than no warden."""
        if self.by_runner.get(runner) == facts:
            return
        self.by_runner[runner] = facts
        fields = log_fields(runner=runner, cpu=facts.cpu.cpu_class)
        log.info("a runner has reported its hardware", extra=fields)
        try:
            self._path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            replace(self._path, msgspec.json.format(msgspec.json.encode(self.by_runner)), PRIVATE)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)


def _read(path: Path) -> dict[str, HardwareFacts]:
    """Return the reports on disk; what cannot be read is reported again soon."""
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s is not used: %s", path, error)
        return {}
