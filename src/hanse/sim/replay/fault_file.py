"""Faults file of a replay: the members that fail, with time and length.

One fault a line; ``#`` begins a comment. Times count from the first arrival; units are ms, s, m and h.
Brokers and clusters are numbered from 1::

    lose broker 2 at 1000s               # for good: its standby takes its jobs over
    lose broker 2 at 1000s for 300s      # and restarts with its journal
    lose cluster 3 at 20m for 10m        # all its nodes with their tasks, its runner and its warden
    partition cluster 3 at 1h for 60s    # no message passes between it and the rest
    partition broker 1 cluster 1 cluster 2 at 1h for 60s     # these three stay connected

Faults that the league cannot survive are refused: it promises to survive the loss of any one process, so
brokers that are lost for good need ``TAKEOVER_SECONDS`` between them, one must be left, and none may be lost
for good when a cluster is (a standby needs the agreement of every warden).
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from hanse.model.ids import SECOND
from hanse.sim.replay.run_records import ReplayError, ReplaySettings

FAULTS_MAX: Final = 1_000
"""Largest number of faults in one run."""
TAKEOVER_SECONDS: Final = 120
"""Time for a standby to take a shard over before another broker may be lost for good."""

_UNITS: Final = {"ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND}
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_LINE: Final = re.compile(
    r"(?P<what>lose|partition)(?P<whom>(?: (?:broker|cluster) \d+)+) at (?P<at>\S+)(?: for (?P<length>\S+))?"
)


class ReplayFault(msgspec.Struct, frozen=True):
    """One fault. Numbers from 0, times in microseconds after the first arrival."""

    partition: bool
    brokers: tuple[int, ...]
    clusters: tuple[int, ...]
    at: int
    length: int | None
    """Length of the fault; None: for good."""


def read_faults(settings: ReplaySettings) -> tuple[ReplayFault, ...]:
    """Return the faults in the file that the settings name, in the order of their times; raise ``OSError``
    if there is no file."""
    try:
        text = Path(settings.faults).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ReplayError(f"{settings.faults} is not a text file: {error}") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line_text = " ".join(line.partition("#")[0].split())
        if line_text:
            found.append(_parse_fault(line_text, f"{Path(settings.faults).name}, line {number}", settings))
    if len(found) > FAULTS_MAX:
        raise ReplayError(f"a faults file has at most {FAULTS_MAX} faults, not {len(found)}")
    faults = tuple(sorted(found, key=lambda fault: fault.at))
    _check_survival(faults, settings)
    return faults


def _parse_fault(line_text: str, where: str, settings: ReplaySettings) -> ReplayFault:
    match = _LINE.fullmatch(line_text)
    if match is None:
        raise ReplayError(
            f"{where}: {line_text!r} is not a fault; write for example 'lose broker 2 at 100s for 60s' or"
            " 'partition cluster 3 at 100s for 60s'"
        )
    brokers: list[int] = []
    clusters: list[int] = []
    parts = match["whom"].split()
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        known, most = (brokers, settings.brokers) if kind == "broker" else (clusters, settings.clusters)
        if not 1 <= int(text) <= most:
            raise ReplayError(f"{where}: there is no {kind} {text}, only 1 to {most}")
        known.append(int(text) - 1)
    partition = match["what"] == "partition"
    length = _parse_time(match["length"], where) if match["length"] else None
    if partition and length is None:
        raise ReplayError(f"{where}: a partition needs its length, for example 'for 60s'")
    return ReplayFault(partition, tuple(brokers), tuple(clusters), _parse_time(match["at"], where), length)


def _parse_time(text: str, where: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ReplayError(f"{where}: {text!r} is not a time; write 500ms, 60s, 10m or 2h")
    return round(float(match[1]) * _UNITS[match[2]])


def _check_survival(faults: tuple[ReplayFault, ...], settings: ReplaySettings) -> None:
    """Refuse losses after which some job could never end."""
    permanent_losses = [fault for fault in faults if not fault.partition and fault.length is None]
    broker_times = [fault.at for fault in permanent_losses for _ in dict.fromkeys(fault.brokers)]
    lost_brokers = dict.fromkeys(broker for fault in permanent_losses for broker in fault.brokers)
    lost_clusters = dict.fromkeys(cluster for fault in permanent_losses for cluster in fault.clusters)
    if len(lost_brokers) >= settings.brokers or len(lost_clusters) >= settings.clusters:
        raise ReplayError("one broker and one cluster must be left: give the others a length ('for 60s')")
    if lost_brokers and lost_clusters:
        raise ReplayError(
            "a broker and a cluster cannot both be lost for good: a takeover needs every warden"
        )
    for former, later in pairwise(broker_times):
        if later - former < TAKEOVER_SECONDS * SECOND:
            raise ReplayError(
                f"brokers that are lost for good must be lost at least {TAKEOVER_SECONDS} s apart, so that a"
                " standby can take over before it is lost itself"
            )
