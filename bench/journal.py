"""How many durable records a second the journal takes, beside a plain loop of write and ``fdatasync``.

``python bench/journal.py --json FILE`` writes what it prints. Both write the same records in the same groups
to the same disk (that of the current directory), in turns, so that a busy disk slows both; the plain loop has
no checksum, no chain, no numbers and takes no room in advance. Seconds are of the clock, because a sync is
waiting. The ratio is that of the median commits, which other work on the machine hardly moves, and above 1
where the journal is faster; those of the turns compare whole rates and show how uneven the disk was.
"""

import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import as_program

from hanse.live.journal import Journal

GROUPS = (1, 10, 100)
COMMITS = 200
"""Commits in one turn."""
TURNS = 7
RECORD_BYTES = 200
APPENDS = 50_000


def journal_seconds(directory: Path, group: int) -> list[float]:
    """Seconds of each commit of ``group`` records, appends included."""
    journal, _ = Journal.open(directory)
    taken = []
    for turn in range(COMMITS):
        record = bytes([turn % 251]) * RECORD_BYTES
        begin = time.perf_counter()
        for _ in range(group):
            journal.append(record)
        journal.commit()
        taken.append(time.perf_counter() - begin)
    journal.close()
    return taken


def plain_seconds(path: Path, group: int) -> list[float]:
    """The same with nothing but write and ``fdatasync``."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    taken = []
    for turn in range(COMMITS):
        record = bytes([turn % 251]) * RECORD_BYTES
        begin = time.perf_counter()
        os.write(fd, b"".join([record] * group))
        os.fdatasync(fd)
        taken.append(time.perf_counter() - begin)
    os.close(fd)
    return taken


def compare(place: Path, group: int) -> dict[str, Any]:
    """Both in turns; of each the median turn's rate and the median commit."""
    rates: dict[str, list[float]] = {"journal": [], "plain": []}
    commits: dict[str, list[float]] = {"journal": [], "plain": []}
    for turn in range(TURNS):
        for name, taken in (
            ("plain", plain_seconds(place / f"plain-{group}", group)),
            ("journal", journal_seconds(place / f"journal-{group}-{turn}", group)),
        ):
            rates[name].append(group * COMMITS / sum(taken))
            commits[name] += taken
    ratios = sorted(round(one / other, 2) for one, other in zip(*rates.values(), strict=True))
    return {
        "journal_records_per_second": round(statistics.median(rates["journal"])),
        "plain_records_per_second": round(statistics.median(rates["plain"])),
        "ratio": round(statistics.median(commits["plain"]) / statistics.median(commits["journal"]), 2),
        "ratios_of_turns": ratios,
        "journal_commit_ms_p50": round(statistics.median(commits["journal"]) * 1e3, 3),
        "plain_commit_ms_p50": round(statistics.median(commits["plain"]) * 1e3, 3),
    }


def append_and_recover(directory: Path) -> dict[str, Any]:
    """What one append costs the caller, and how fast a journal is read and checked when it is opened."""
    journal, _ = Journal.open(directory)
    record = b"x" * RECORD_BYTES
    begin = time.process_time()
    for _ in range(APPENDS):
        journal.append(record)
    append = (time.process_time() - begin) / APPENDS
    journal.commit()
    for _ in range(9):
        for _ in range(APPENDS):
            journal.append(record)
        journal.commit()
    journal.close()
    begin = time.process_time()
    journal, recovered = Journal.open(directory)
    seconds = time.process_time() - begin
    journal.close()
    return {
        "append_us": round(append * 1e6, 3),
        "recovered_records": len(recovered.records),
        "recovered_records_per_cpu_second": round(len(recovered.records) / seconds),
        "recovered_mb_per_cpu_second": round(len(recovered.records) * RECORD_BYTES / seconds / 1e6),
    }


def run() -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-journal-") as name:
        place = Path(name)
        return {
            "machine": {"python": platform.python_version(), "cpu": platform.machine()},
            "record_bytes": RECORD_BYTES,
            "commits": COMMITS * TURNS,
            "groups": {str(group): compare(place, group) for group in GROUPS},
            **append_and_recover(place / "long"),
        }


if __name__ == "__main__":
    as_program(run, "Durable records a second.")
