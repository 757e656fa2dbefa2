"""The metrics of every member: its process, its links, its HTTPS server, its certificate, its journal."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from hanse import __version__
from hanse.live.disk_space import FilesystemSpace, read_filesystem_space
from hanse.live.journal.journal import Journal
from hanse.live.telemetry.http_metrics import HttpMetrics
from hanse.live.telemetry.link_metrics import LinkMetrics
from hanse.live.telemetry.loop_lag import LoopLag
from hanse.live.telemetry.prometheus_text import (
    Histogram,
    Labels,
    MetricFamily,
    by_label,
    counter,
    gauge,
    histogram,
    render,
    unlabelled_sample,
)
from hanse.model.ids import SECOND
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity

_STAT: Final = Path("/proc/self/stat")
_MEMORY: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")
_BOOT: Final = Path("/proc/stat")
_REFUSED: Final = "refused_"
_DROPPED: Final = "dropped_"
_CONNECTIONS: Final = (
    "admitted",
    "connected",
    "disconnected",
    "redialled_heard",
    "redialled_unheard",
    "stalled",
    "unreachable",
)
"""Counters of the transport that are about connections."""


class ObservedDaemon(Protocol):
    """The parts of a daemon that the metrics read."""

    identity: Identity
    directory: Path
    credentials: Credentials
    counters: dict[str, int]

    @property
    def wire_counters(self) -> Mapping[str, int]:
        """Counters of the transport."""
        ...


class JournalMetrics:
    """The metrics of a journal's commits. The journal's own thread reports them."""

    def __init__(self, journal: Journal) -> None:
        self.seconds = Histogram()
        self.records = 0
        self.bytes = 0
        self.longest_event: Callable[[], float] = lambda: 0.0
        """Returns the longest time that one event has blocked the member's loop, as its shell knows."""
        self._journal = journal
        journal.on_commit = self.on_commit

    @property
    def position(self) -> int:
        """Number of the last record."""
        return self._journal.position

    def on_commit(self, records: int, size: int, seconds: float) -> None:
        """Count records that are on disk."""
        self.records += records
        self.bytes += size
        self.seconds.observe(seconds)

    def families(self) -> list[MetricFamily]:
        """Return the journal's metrics."""
        return [
            histogram(
                "hanse_journal_commit_duration_seconds",
                "Time to write and sync one group of events.",
                [((), self.seconds)],
            ),
            gauge(
                "hanse_event_longest_seconds",
                "The longest processor time of one event, or of one snapshot, since the start.",
                unlabelled_sample(self.longest_event()),
            ),
            counter(
                "hanse_journal_records_total",
                "Events that were made durable.",
                unlabelled_sample(self.records),
            ),
            counter(
                "hanse_journal_bytes_total",
                "Bytes of events that were made durable.",
                unlabelled_sample(self.bytes),
            ),
        ]


class MemberMetrics:
    """The metrics of all members. Subclasses add theirs in ``own_families``."""

    def __init__(self, daemon: ObservedDaemon) -> None:
        self.daemon = daemon
        self.http = HttpMetrics()
        self.links = LinkMetrics()
        self.league_file_state: Callable[[], tuple[int, list[str], list[str]]] = lambda: (0, [], [])
        """Returns the version of the league file, members with another one, members that may not act."""
        self.tasks_room: Callable[[], FilesystemSpace | None] = lambda: None
        """Returns the free space of the disk under this member's tasks, as its backend last saw it, or
        None."""
        self.lag: LoopLag | None = None
        """Lag of the member's loop, after it has started."""

    async def scrape(self) -> bytes:
        """Return the answer to a scrape."""
        return render([*self.shared_families(), *await self.own_families()])

    def close(self) -> None:
        """Release what the metrics hold. The base class holds nothing."""

    async def own_families(self) -> list[MetricFamily]:
        """Return the metrics of this kind of member."""
        return []

    def shared_families(self) -> list[MetricFamily]:
        """Return the metrics of every member."""
        return [
            *_process_families(),
            self._build_family(),
            *self._membership_families(),
            *self._certificate_families(),
            *self._disk_families(),
            *_wire_families(self.daemon.wire_counters),
            *self._link_families(),
            *self.http.families(),
            *self._lag_families(),
            counter(
                "hanse_door_refusals_total",
                "Requests that the HTTPS server has refused, by the code of the refusal.",
                by_label("code", _with_prefix(self.daemon.counters, _REFUSED)),
            ),
        ]

    def _lag_families(self) -> list[MetricFamily]:
        lag = self.lag
        return [
            gauge(
                "hanse_loop_lag_longest_seconds",
                "The longest that the member's loop was blocked since the start, for any reason.",
                unlabelled_sample(lag.longest if lag is not None else 0.0),
            ),
            counter(
                "hanse_loop_lags_total",
                "How often the member's loop was blocked for longer than 50 ms.",
                unlabelled_sample(lag.long_lags if lag is not None else 0),
            ),
        ]

    def _build_family(self) -> MetricFamily:
        identity = self.daemon.identity
        labels: Labels = (
            ("league", identity.league),
            ("member", identity.name),
            ("python", platform.python_version()),
            ("role", str(identity.role)),
            ("version", __version__),
        )
        return gauge("hanse_build_info", "The software that runs here; always 1.", [(labels, 1)])

    def _membership_families(self) -> list[MetricFamily]:
        version, differing, fenced = self.league_file_state()
        return [
            gauge(
                "hanse_league_file_version", "Version of the league file here.", unlabelled_sample(version)
            ),
            gauge(
                "hanse_league_file_differs",
                "1 for each member that has another league file, or cannot use this one.",
                by_label("member", dict.fromkeys(differing, 1.0)),
            ),
            gauge(
                "hanse_member_fenced",
                "1 for each member that stopped because it lost records or its peers remember more of it.",
                by_label("member", dict.fromkeys(fenced, 1.0)),
            ),
        ]

    def _certificate_families(self) -> list[MetricFamily]:
        counters = self.daemon.counters
        results = {"failed": counters.get("renewal_failed", 0), "renewed": counters.get("renewed", 0)}
        ends = self.daemon.credentials.certificate().not_after / SECOND
        return [
            gauge(
                "hanse_certificate_expiry_timestamp_seconds",
                "End of this member's certificate, in unix time.",
                unlabelled_sample(ends),
            ),
            counter(
                "hanse_certificate_renewals_total",
                "Renewals of this member's certificate, by result.",
                by_label("result", results),
            ),
        ]

    def _disk_families(self) -> list[MetricFamily]:
        rooms = {"member": read_filesystem_space(self.daemon.directory)}
        tasks = self.tasks_room()
        if tasks is not None:
            rooms["tasks"] = tasks
        return [
            gauge(
                "hanse_disk_free_bytes",
                "Free space on the disk of the member's own files, and of its tasks.",
                by_label("disk", {name: room.bytes_free for name, room in rooms.items()}),
            ),
            gauge(
                "hanse_disk_room_ratio",
                "The same in bytes or inodes, whichever is scarcer, as a multiple of the amount below which "
                "no new work is taken.",
                by_label("disk", {name: room.ratio for name, room in rooms.items()}),
            ),
        ]

    def _link_families(self) -> list[MetricFamily]:
        links = self.links
        dropped = _with_prefix(self.daemon.counters, _DROPPED)
        return [
            counter(
                "hanse_messages_taken_total",
                "Messages that the machine took, by kind.",
                by_label("kind", links.received),
            ),
            counter(
                "hanse_messages_sent_total",
                "Messages that the machine sent, by kind.",
                by_label("kind", links.sent),
            ),
            counter(
                "hanse_messages_repeated_total",
                "Messages that were sent again because nobody acknowledged them.",
                unlabelled_sample(links.repeated),
            ),
            counter(
                "hanse_messages_dropped_total",
                "Messages that arrived and were not taken, by reason; their senders repeat them.",
                by_label("reason", {"disk_behind": 0, **dropped}),
            ),
            gauge(
                "hanse_link_backlog_messages",
                "Messages that a peer has not acknowledged.",
                by_label("peer", links.backlog()),
            ),
        ]


def _with_prefix(counters: Mapping[str, int], prefix: str) -> dict[str, float]:
    """Return the counters with this prefix in their names, without the prefix."""
    return {name.removeprefix(prefix): count for name, count in counters.items() if name.startswith(prefix)}


def _wire_families(counters: Mapping[str, int]) -> list[MetricFamily]:
    def both_directions(kind: str) -> dict[str, float]:
        prefix = f"{kind}_" if kind else ""
        return {direction: counters.get(f"{prefix}{direction}", 0) for direction in ("received", "sent")}

    return [
        counter(
            "hanse_wire_messages_total",
            "Messages between members.",
            by_label("direction", both_directions("")),
        ),
        counter(
            "hanse_wire_frames_total",
            "Frames between members.",
            by_label("direction", both_directions("frames")),
        ),
        counter(
            "hanse_wire_bytes_total",
            "Bytes of the same, before TLS.",
            by_label("direction", both_directions("bytes")),
        ),
        counter(
            "hanse_wire_refusals_total",
            "Input from members that was refused, by reason.",
            by_label("reason", _with_prefix(counters, _REFUSED)),
        ),
        counter(
            "hanse_wire_dropped_total",
            "Messages that could not leave, by reason; the links repeat them.",
            by_label("reason", _with_prefix(counters, _DROPPED)),
        ),
        counter(
            "hanse_wire_connections_total",
            "Connections between members, by event.",
            by_label("event", {name: counters.get(name, 0) for name in _CONNECTIONS}),
        ),
    ]


def _process_families() -> list[MetricFamily]:
    """Return the process metrics, named as in Prometheus' own libraries: without a prefix."""
    ticks = os.sysconf("SC_CLK_TCK")
    cells = _STAT.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    resident = int(_MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [
        counter(
            "process_cpu_seconds_total",
            "CPU time of this process, user and system.",
            unlabelled_sample((int(cells[11]) + int(cells[12])) / ticks),
        ),
        gauge(
            "process_resident_memory_bytes", "Resident memory of this process.", unlabelled_sample(resident)
        ),
        gauge(
            "process_open_fds",
            "Open file descriptors of this process.",
            unlabelled_sample(sum(1 for _ in _DESCRIPTORS.iterdir())),
        ),
        gauge(
            "process_start_time_seconds",
            "Start of this process, in unix time.",
            unlabelled_sample(_boot_time() + int(cells[19]) / ticks),
        ),
    ]


def _boot_time() -> float:
    """Return the boot time of the host, in unix time."""
    for line in _BOOT.read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
