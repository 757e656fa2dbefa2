"""A start after a power cut measured: ``python bench/restart.py --json FILE [--megabytes N]``.

A broker's journal is filled through the live shell with jobs of a megabyte of arguments each, which are
cancelled at once, and left as a power cut leaves it. Then the broker comes back: from a journal with the
snapshots that the shell has made, and from one of before snapshots went by bytes, which has none.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from hanse.core.config import BrokerConfig
from hanse.league.config import PolicyConfig
from hanse.live import checks_and_snapshots as snapshots_module
from hanse.live.config.config_history import BrokerSettings
from hanse.live.recovery import recover
from hanse.live.shell import JournalledShell
from hanse.model.events import Booted, CancelRequested, JobSubmitted
from hanse.model.ids import job_id
from hanse.model.job import JobSpec, TaskGroup

MEGABYTES = 1_020
"""Not a multiple of what lies between two snapshots: the last 60 have to be replayed."""
PAYLOAD = 1 << 20


async def fill(directory: Path, settings: BrokerSettings, megabytes: int) -> None:
    """Let a broker live, and cut it off."""
    found = recover(directory, settings)
    shell = JournalledShell(found.machine, found.clock, lambda _: None, found.journal, print)
    shell.handle(Booted(shell.clock.now(), 1, 7))
    for number in range(megabytes):
        payload = number.to_bytes(4, "big") + bytes(PAYLOAD - 4)
        shell.handle(
            JobSubmitted(shell.clock.now(), "me", 2 * number, JobSpec((TaskGroup(payload=payload),)))
        )
        shell.handle(CancelRequested(shell.clock.now(), "me", 2 * number + 1, job_id(1, number)))
        await shell.wait_durable()
    shell.snapshots._pool.shutdown(wait=True)
    found.journal._failure = RuntimeError("a power cut")  # type: ignore[assignment]
    shell.close()


def come_back(directory: Path, settings: BrokerSettings) -> dict[str, Any]:
    """Start again; how long it took and what there was to do."""
    size = sum(path.stat().st_size for path in (directory / "journal").iterdir())
    begin, cpu = time.perf_counter(), time.process_time()
    found = recover(directory, settings)
    took = {
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "events_replayed": found.replayed,
        "megabytes_on_disk": size >> 20,
    }
    found.journal.close()
    return took


def measured(megabytes: int) -> dict[str, Any]:
    """Both journals."""
    settings = BrokerSettings(BrokerConfig("b1", 1, ("b1",), ("c1",)), PolicyConfig())
    figures = {}
    for name, bound in (("with_snapshots", snapshots_module.SNAPSHOT_BYTES), ("without", 1 << 40)):
        snapshots_module.SNAPSHOT_BYTES = bound  # type: ignore[misc]
        with tempfile.TemporaryDirectory(prefix="hanse-bench-") as directory:
            asyncio.run(fill(Path(directory) / "b1", settings, megabytes))
            figures[name] = come_back(Path(directory) / "b1", settings)
    return figures


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    options = parser.parse_args()
    figures = {
        "load_before": round(os.getloadavg()[0], 1),
        "written_megabytes": options.megabytes,
        **measured(options.megabytes),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
