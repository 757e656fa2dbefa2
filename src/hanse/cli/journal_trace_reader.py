"""Reader of brokers' journals as a trace: the accepted jobs, with the run times they had.

A directory counts as a journal source when it is a league's home (all brokers of this machine), a broker's
own directory, or the ``journal`` in it. A journal holds the events of a broker, not its effects; so a fresh
machine, made from the league file in the home, handles every event again; its effects show the accepted jobs
and their ends (``hanse.sim.traces.journal_jobs``). Nothing is locked or changed, and the journal of a running
broker can be read.

Every broker has its own clock. Brokers of one machine are aligned exactly, by the machine's clock since boot;
others by the time of day at which their journals were last written, which is good to about a beat.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import merge
from pathlib import Path
from typing import Final

import msgspec

from hanse.core.broker.state import decode_state
from hanse.league.config import LeagueConfig, LeagueError
from hanse.league.file import load
from hanse.live.config import config_history
from hanse.live.journal.errors import JournalError
from hanse.live.journal.files import list_files
from hanse.live.journal.reading import History, read_history, read_records
from hanse.live.recovery import CLOCK_FILE, JOURNAL_DIRECTORY, decode_event
from hanse.model.events import Event
from hanse.security.home import LEAGUE_FILE, Home
from hanse.sim.traces.chunk import JobChunk
from hanse.sim.traces.chunk_builder import ChunkBuilder
from hanse.sim.traces.journal_jobs import EXTRA_KINDS, EXTRA_NAMED, ClockShift, JournalJobs
from hanse.sim.traces.read_report import ReadReport, TraceError
from hanse.sim.traces.reader import OpenTrace

FORMAT: Final = "journal"
ABOUT: Final = "Hanse's own journals; a league's home, or a broker's directory in it"
NOT_AN_EVENT: Final = "a record that is not an event of this version"
LAST_RECORDS: Final = 100
"""Records at the end of a journal searched for an event."""
_NO_TIME: Final = 1 << 62


class _SavedClock(msgspec.Struct, frozen=True):
    """Saved clock of a member (``hanse.live.clock``): instant = time since the boot + offset."""

    boot: str
    offset: int


class _JournalledBroker(msgspec.Struct, frozen=True):
    """Broker with a journal."""

    name: str
    directory: Path
    """Directory of the broker in the home."""
    league: LeagueConfig

    @property
    def journal(self) -> Path:
        """Directory of the broker's records."""
        return self.directory / JOURNAL_DIRECTORY


def is_journal(path: Path) -> bool:
    """True if ``JournalReader`` can read this path."""
    return path.is_dir() and (
        (path / LEAGUE_FILE).is_file()
        or (path / JOURNAL_DIRECTORY).is_dir()
        or bool(list(path.glob("*.seg")))
    )


class JournalReader(OpenTrace):
    """Trace of the journals of one or more brokers of one league; may be iterated again."""

    def __init__(self, paths: Iterable[Path]) -> None:
        places = list(paths)
        super().__init__(", ".join(map(str, places)), FORMAT)
        found = [broker for path in places for broker in _brokers(path)]
        self._brokers = list({broker.name: broker for broker in found}.values())
        if len(found) != len(self._brokers):
            raise TraceError(f"{self.name}: the journal of one broker is given twice; name each journal once")
        try:
            self._shifts, self.rows_total = _clock_shifts(self._brokers)
        except JournalError as error:
            raise TraceError(f"{self.name}: {error}") from error
        self.nodes_hint = sum(len(cluster.nodes) for cluster in self._brokers[0].league.clusters)
        self.unix_start = 0  # the shared clock is the time of day

    def chunks(self) -> Iterator[JobChunk]:
        """Yield the chunks of one pass over all journals, in the order of time."""
        try:
            histories = [(broker, read_history(broker.journal)) for broker in self._brokers]
        except JournalError as error:
            raise TraceError(f"{self.name}: {error}") from error
        replayers = [
            _JournalReplayer(broker, past, ClockShift(self._shifts[broker.name]), self.report)
            for broker, past in histories
        ]
        begin = min((replayer.begin for replayer in replayers), default=0)
        self.origin = 0 if begin == _NO_TIME else begin
        builder = ChunkBuilder(self.report, EXTRA_KINDS, EXTRA_NAMED, origin=self.origin)
        past = JournalJobs(self.report, builder.names)
        for replayer in replayers:
            past.add_state(replayer.state, replayer.times)
        events = merge(*(replayer.events(place) for place, replayer in enumerate(replayers)))
        for _, place, position, event in events:
            replayers[place].apply_event(past, position, event)
            for row in past.ready_rows():
                if builder.is_flush_due(row):
                    yield builder.flush()
                builder.add(position, row)
        for row in past.remaining_rows():
            if builder.is_flush_due(row):
                yield builder.flush()
            builder.add(0, row)
        if builder.entries:
            yield builder.flush()


class _JournalReplayer:
    """Replay of a broker's journal through a fresh machine."""

    def __init__(
        self, broker: _JournalledBroker, past: History, times: ClockShift, report: ReadReport
    ) -> None:
        self.name = broker.name
        self.times = times
        self._report = report
        config_entries = config_history.read_config_history(
            broker.journal.parent, config_history.member_settings(broker.league, broker.name)
        )
        self._replay = config_history.MachineReplay(config_entries, past.position, past.snapshot)
        self._stream = self._decode_events(past)
        self.state = decode_state(self._replay.machine.dump())
        """State of the broker where the journal begins."""
        self._first = next(self._stream, None)
        self.begin = min(
            [record.accepted_at + times.shift for record in self.state.jobs.values()]
            + [
                since + times.shift
                for shard in self.state.standby_shards.values()
                for since in shard.accepted_at.values()
            ]
            + ([self._first[1].at + times.shift] if self._first is not None else [_NO_TIME])
        )
        """Shared time at which the journal begins."""

    def events(self, place: int) -> Iterator[tuple[int, int, int, Event]]:
        """Yield shared time, ``place``, position and event; no two have the same first three."""
        if self._first is not None:
            position, event = self._first
            yield event.at + self.times.shift, place, position, event
        for position, event in self._stream:
            yield event.at + self.times.shift, place, position, event

    def apply_event(self, past: JournalJobs, position: int, event: Event) -> None:
        """Handle an event in the machine, and record its effects in ``past``."""
        past.add_event(self.name, event, self._replay.machine.handle(event), self.times)
        self._replay.advance(position)

    def _decode_events(self, past: History) -> Iterator[tuple[int, Event]]:
        """Yield the events up to the first unusable record: later ones would be handled wrongly."""
        position = past.position
        try:
            for position, record in past.records:
                self._report.rows += 1
                yield position, decode_event(record)
        except msgspec.MsgspecError as error:
            self._report.bad_row(position, NOT_AN_EVENT, str(error))
            self._report.note(f"{self.name}: what follows record {position:,} is not read")
        except JournalError as error:
            self._report.note(f"{self.name}: read up to record {position:,} only: {error}")


def _brokers(path: Path) -> list[_JournalledBroker]:
    """Return the brokers whose journals a path names."""
    if (path / LEAGUE_FILE).is_file():
        home, names = path, None
    else:
        member = path if (path / JOURNAL_DIRECTORY).is_dir() else path.parent
        home, names = member.parent, [member.resolve().name]
    try:
        league = load(Home(home).league_file)
    except FileNotFoundError as error:
        raise TraceError(
            f"{path}: a journal needs the league file of its league. Keep {LEAGUE_FILE} beside the"
            " brokers' directories, as in the league's home"
        ) from error
    except LeagueError as error:
        raise TraceError(str(error)) from error
    brokers = [
        _JournalledBroker(entry.name, Home(home).member(entry.name), league)
        for entry in league.brokers
        if (names is None or entry.name in names)
        and (Home(home).member(entry.name) / JOURNAL_DIRECTORY).is_dir()
    ]
    if not brokers:
        known = ", ".join(entry.name for entry in league.brokers)
        raise TraceError(
            f"{path}: no broker's journal is there; only journals of brokers ({known}) have whole jobs"
        )
    return brokers


def _clock_shifts(brokers: list[_JournalledBroker]) -> tuple[dict[str, int], int]:
    """Return what to add to each broker's instants to get Unix microseconds, and the number of records."""
    shifts: dict[str, int] = {}
    groups: dict[str, list[tuple[str, int, int]]] = {}
    records = 0
    for broker in brokers:
        files = list_files(broker.journal)
        last, at = _last_event(broker.journal, [first for first, _ in files.segments])
        oldest = files.segments[0][0] if files.segments else 1
        records += last - (oldest - 1 if oldest == 1 else min((n for n, _ in files.snapshots), default=0))
        written = max((path.stat().st_mtime_ns // 1_000 for _, path in files.segments), default=0)
        shifts[broker.name] = written - at
        clock = _saved_clock(broker.directory / CLOCK_FILE)
        if clock is not None:
            groups.setdefault(clock.boot, []).append((broker.name, clock.offset, written - at))
    for group in groups.values():
        # a file is written after its last event, never before: the least delay is the best estimate
        started = min(offset + shift for _, offset, shift in group)
        for name, offset, _ in group:
            shifts[name] = started - offset
    return shifts, records


def _saved_clock(path: Path) -> _SavedClock | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_SavedClock)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _last_event(directory: Path, firsts: list[int]) -> tuple[int, int]:
    """Return the number of a journal's last record and the instant of its last event; 0 and 0 for none."""
    for first in reversed(firsts):
        records = deque(read_records(directory, first - 1), maxlen=LAST_RECORDS)
        for _, record in reversed(records):
            with suppress(msgspec.MsgspecError):
                return records[-1][0], decode_event(record).at
    return 0, 0
