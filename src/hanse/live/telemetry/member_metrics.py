"""What every member shows: its process, its wire, its door, its certificate, its journal."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from hanse import __version__
from hanse.live.disk_space import Room, room_of
from hanse.live.journal.journal import Journal
from hanse.live.telemetry.http_metrics import DoorWatch
from hanse.live.telemetry.link_metrics import Links
from hanse.live.telemetry.loop_lag import LoopLag
from hanse.live.telemetry.prometheus_text import (
    Family,
    Histogram,
    Labels,
    by,
    counter,
    gauge,
    histogram,
    plain,
    render,
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
"""Counters of the wire that tell of connections."""


class Daemonic(Protocol):
    """A daemon, as far as it is looked at."""

    identity: Identity
    directory: Path
    credentials: Credentials
    counters: dict[str, int]

    @property
    def wire_counters(self) -> Mapping[str, int]:
        """What the wire has counted."""
        ...


class JournalWatch:
    """What a journal's commits take. Told by the journal's own thread."""

    def __init__(self, journal: Journal) -> None:
        self.seconds = Histogram()
        self.records = 0
        self.bytes = 0
        self.longest: Callable[[], float] = lambda: 0.0
        """The longest that one event has kept the member's loop, as its shell knows."""
        self._journal = journal
        journal.committed = self.committed

    @property
    def position(self) -> int:
        """Number of the last record."""
        return self._journal.position

    def committed(self, records: int, size: int, seconds: float) -> None:
        """Some records are on disk."""
        self.records += records
        self.bytes += size
        self.seconds.observe(seconds)

    def families(self) -> list[Family]:
        """The journal's metrics."""
        return [
            histogram(
                "hanse_journal_commit_duration_seconds",
                "Time to write and sync one group of events.",
                [((), self.seconds)],
            ),
            gauge(
                "hanse_event_longest_seconds",
                "The most processor time that one event, or one snapshot, has kept the loop since the start.",
                plain(self.longest()),
            ),
            counter("hanse_journal_records_total", "Events that were made durable.", plain(self.records)),
            counter(
                "hanse_journal_bytes_total", "Bytes of events that were made durable.", plain(self.bytes)
            ),
        ]


class MemberWatch:
    """The metrics that all members have. Others add theirs in ``own_families``."""

    def __init__(self, daemon: Daemonic) -> None:
        self.daemon = daemon
        self.door = DoorWatch()
        self.links = Links()
        self.league_file: Callable[[], tuple[int, list[str], list[str]]] = lambda: (0, [], [])
        """The version of the league file, members with another one, members that may not act."""
        self.tasks_room: Callable[[], Room | None] = lambda: None
        """The room of the disk under this member's tasks, as its backend last saw it; None: there is none."""
        self.lag: LoopLag | None = None
        """Of the member's loop, when it has started."""

    async def scrape(self) -> bytes:
        """The answer to Prometheus."""
        return render([*self.shared_families(), *await self.own_families()])

    def close(self) -> None:
        """Nothing more will happen."""

    async def own_families(self) -> list[Family]:
        """What only this kind of member shows."""
        return []

    def shared_families(self) -> list[Family]:
        """What every member shows."""
        return [
            *_process_families(),
            self._build(),
            *self._membership_families(),
            *self._certificate_families(),
            *self._disk_families(),
            *_wire_families(self.daemon.wire_counters),
            *self._link_families(),
            *self.door.families(),
            *self._lag_families(),
            counter(
                "hanse_door_refusals_total",
                "Requests that the door has refused, by the code of the refusal.",
                by("code", _those(self.daemon.counters, _REFUSED)),
            ),
        ]

    def _lag_families(self) -> list[Family]:
        lag = self.lag
        return [
            gauge(
                "hanse_loop_lag_longest_seconds",
                "The longest that the member's loop was kept since the start, whatever kept it.",
                plain(lag.longest if lag is not None else 0.0),
            ),
            counter(
                "hanse_loop_lags_total",
                "How often the member's loop was kept for longer than 50 ms.",
                plain(lag.long if lag is not None else 0),
            ),
        ]

    def _build(self) -> Family:
        identity = self.daemon.identity
        labels: Labels = (
            ("league", identity.league),
            ("member", identity.name),
            ("python", platform.python_version()),
            ("role", str(identity.role)),
            ("version", __version__),
        )
        return gauge("hanse_build_info", "What runs here; always 1.", [(labels, 1)])

    def _membership_families(self) -> list[Family]:
        version, differing, fenced = self.league_file()
        return [
            gauge("hanse_league_file_version", "Version of the league file here.", plain(version)),
            gauge(
                "hanse_league_file_differs",
                "1 for each member that was heard to have another league file, or cannot live by this one.",
                by("member", dict.fromkeys(differing, 1.0)),
            ),
            gauge(
                "hanse_member_fenced",
                "1 for each member that ended because it lost records or its peers remember more of it.",
                by("member", dict.fromkeys(fenced, 1.0)),
            ),
        ]

    def _certificate_families(self) -> list[Family]:
        counters = self.daemon.counters
        results = {"failed": counters.get("renewal_failed", 0), "renewed": counters.get("renewed", 0)}
        ends = self.daemon.credentials.certificate().not_after / SECOND
        return [
            gauge(
                "hanse_certificate_expiry_timestamp_seconds",
                "When this member's certificate ends, in unix time.",
                plain(ends),
            ),
            counter(
                "hanse_certificate_renewals_total",
                "Renewals of this member's certificate, by result.",
                by("result", results),
            ),
        ]

    def _disk_families(self) -> list[Family]:
        rooms = {"member": room_of(self.daemon.directory)}
        tasks = self.tasks_room()
        if tasks is not None:
            rooms["tasks"] = tasks
        return [
            gauge(
                "hanse_disk_free_bytes",
                "Free room on the disk of the member's own files, and of its tasks.",
                by("disk", {name: room.bytes_free for name, room in rooms.items()}),
            ),
            gauge(
                "hanse_disk_room_ratio",
                "The same in bytes or inodes, whichever is scarcer, as a multiple of that below which "
                "nothing new is taken.",
                by("disk", {name: room.ratio for name, room in rooms.items()}),
            ),
        ]

    def _link_families(self) -> list[Family]:
        links = self.links
        dropped = _those(self.daemon.counters, _DROPPED)
        return [
            counter(
                "hanse_messages_taken_total",
                "Messages that the machine took, by kind.",
                by("kind", links.taken),
            ),
            counter(
                "hanse_messages_sent_total",
                "Messages that the machine sent, by kind.",
                by("kind", links.sent),
            ),
            counter(
                "hanse_messages_repeated_total",
                "Messages that were sent again because nobody acknowledged them.",
                plain(links.repeated),
            ),
            counter(
                "hanse_messages_dropped_total",
                "Messages that arrived and were not taken, by reason; their senders repeat them.",
                by("reason", {"disk_behind": 0, **dropped}),
            ),
            gauge(
                "hanse_link_backlog_messages",
                "Messages that a peer has not acknowledged.",
                by("peer", links.backlog()),
            ),
        ]


def _those(counters: Mapping[str, int], prefix: str) -> dict[str, float]:
    """Counters whose name begins so, without that beginning."""
    return {name.removeprefix(prefix): count for name, count in counters.items() if name.startswith(prefix)}


def _wire_families(counters: Mapping[str, int]) -> list[Family]:
    def both(what: str) -> dict[str, float]:
        prefix = f"{what}_" if what else ""
        return {way: counters.get(f"{prefix}{way}", 0) for way in ("received", "sent")}

    return [
        counter("hanse_wire_messages_total", "Messages over the wire.", by("direction", both(""))),
        counter("hanse_wire_frames_total", "Frames over the wire.", by("direction", both("frames"))),
        counter("hanse_wire_bytes_total", "Bytes over the wire, before TLS.", by("direction", both("bytes"))),
        counter(
            "hanse_wire_refusals_total",
            "What the wire has refused, by reason.",
            by("reason", _those(counters, _REFUSED)),
        ),
        counter(
            "hanse_wire_dropped_total",
            "Messages that could not leave, by reason; the links repeat them.",
            by("reason", _those(counters, _DROPPED)),
        ),
        counter(
            "hanse_wire_connections_total",
            "Connections of the wire, by what happened to them.",
            by("event", {name: counters.get(name, 0) for name in _CONNECTIONS}),
        ),
    ]


def _process_families() -> list[Family]:
    """What Prometheus' own libraries call a process: these names have no prefix by convention."""
    ticks = os.sysconf("SC_CLK_TCK")
    cells = _STAT.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    resident = int(_MEMORY.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return [
        counter(
            "process_cpu_seconds_total",
            "CPU time of this process, user and system.",
            plain((int(cells[11]) + int(cells[12])) / ticks),
        ),
        gauge("process_resident_memory_bytes", "Resident memory of this process.", plain(resident)),
        gauge(
            "process_open_fds",
            "Open file descriptors of this process.",
            plain(sum(1 for _ in _DESCRIPTORS.iterdir())),
        ),
        gauge(
            "process_start_time_seconds",
            "When this process was started, in unix time.",
            plain(_booted() + int(cells[19]) / ticks),
        ),
    ]


def _booted() -> float:
    """When the host was started, in unix time."""
    for line in _BOOT.read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
