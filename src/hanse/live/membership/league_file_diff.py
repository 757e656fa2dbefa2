"""Comparison of two versions of a league file: allowed changes, and the change in sentences."""

from collections.abc import Sequence

import msgspec

from hanse.league.config import BrokerEntry, ClusterEntry, LeagueConfig


def change_problem(old: LeagueConfig, new: LeagueConfig) -> str:
    """Return why a running league cannot go from one file to the other; empty: it can.

    Members are numbered by their places, and job ids and tasks carry these numbers.
    """
    if new.name != old.name:
        return f"the league is called {old.name}, and the file is of {new.name}"
    for kind, before, after in (
        ("broker", _names(old.brokers), _names(new.brokers)),
        ("cluster", _names(old.clusters), _names(new.clusters)),
    ):
        if after[: len(before)] != before:
            missing = next(name for at, name in enumerate(before) if at >= len(after) or after[at] != name)
            return (
                f"the {kind} {missing} is not at its place in the new file: members are numbered by their "
                "places. Add new ones at the end, and take one out with 'hanse league retire'"
            )
    for kind, entries in (("broker", new.brokers), ("cluster", new.clusters)):
        if all(entry.retired for entry in entries):
            return f"no {kind} would be left"
    returned = [name for name in _retired_names(old) if name not in _retired_names(new)]
    if returned:
        return f"{returned[0]} was retired, and its records are gone: give the new member another name"
    unset = [name for name in _names(new.brokers) + _names(new.clusters) if not _has_addresses(new, name)]
    if unset:
        return f"{unset[0]} needs 'address' and 'door' with a port, so that its peers can reach it"
    for was, now in zip(old.clusters, new.clusters, strict=False):
        if len(now.nodes) < len(was.nodes):
            return (
                f"{now.name} has {len(now.nodes)} nodes in the new file and {len(was.nodes)} now: nodes are "
                "numbered by their places. Leave the line, and close the node with 'hanse drain'"
            )
    return ""


def describe_changes(old: LeagueConfig, new: LeagueConfig) -> list[str]:
    """Return the changes, a sentence each."""
    sentences: list[str] = []
    for kind, before, after in (
        ("broker", old.brokers, new.brokers),
        ("cluster", old.clusters, new.clusters),
    ):
        known = {entry.name: entry for entry in before}
        for entry in after:
            was = known.get(entry.name)
            if was is None:
                sentences.append(f"The {kind} {entry.name} is new.")
            elif entry.retired and not was.retired:
                sentences.append(f"The {kind} {entry.name} is retired.")
            elif entry != was:
                parts = [
                    name for name in entry.__struct_fields__ if getattr(entry, name) != getattr(was, name)
                ]
                sentences.append(f"The {kind} {entry.name} changes: {', '.join(parts)}.")
    parts = [part for part in ("timings", "policy") if getattr(old, part) != getattr(new, part)]
    return [*sentences, *(f"The {part} {'changes' if part == 'policy' else 'change'}." for part in parts)]


def is_same(old: LeagueConfig, new: LeagueConfig) -> bool:
    """True if a file asks for the league as it is. What ``apply`` keeps is not compared: its version,
    ``joined`` and ``drained``."""
    return msgspec.structs.replace(new, version=old.version, joined=old.joined, drained=old.drained) == old


def extend_joined(old: LeagueConfig, new: LeagueConfig, version: int) -> tuple[tuple[str, int], ...]:
    """Return ``joined`` with the members that the new file adds in this version."""
    present = _names(old.brokers) + _names(old.clusters)
    added = [name for name in _names(new.brokers) + _names(new.clusters) if name not in present]
    return (*old.joined, *((name, version) for name in added))


def extend_drained(old: LeagueConfig, new: LeagueConfig, is_forced: bool) -> tuple[str, ...]:
    """Return ``drained`` with the clusters that retire by the new file, unless nobody checked whether they
    are drained."""
    if is_forced:
        return old.drained
    clusters = _names(new.clusters)
    return (*old.drained, *(name for name in find_newly_retired(old, new) if name in clusters))


def find_newly_retired(old: LeagueConfig, new: LeagueConfig) -> list[str]:
    """Return members that serve by the old file and not by the new one."""
    before = _retired_names(old)
    return [name for name in _retired_names(new) if name not in before]


def retire_member(league: LeagueConfig, name: str) -> LeagueConfig | None:
    """Return the league with a broker or a cluster retired; None: there is none of that name."""
    if name not in _names(league.brokers) + _names(league.clusters):
        return None
    replace = msgspec.structs.replace
    return replace(
        league,
        brokers=tuple(replace(one, retired=True) if one.name == name else one for one in league.brokers),
        clusters=tuple(replace(one, retired=True) if one.name == name else one for one in league.clusters),
    )


def _names(entries: "Sequence[BrokerEntry | ClusterEntry]") -> tuple[str, ...]:
    return tuple(entry.name for entry in entries)


def _retired_names(league: LeagueConfig) -> list[str]:
    entries: list[BrokerEntry | ClusterEntry] = [*league.brokers, *league.clusters]
    return [entry.name for entry in entries if entry.retired]


def _has_addresses(league: LeagueConfig, name: str) -> bool:
    entries: list[BrokerEntry | ClusterEntry] = [*league.brokers, *league.clusters]
    return all(entry.address.port and entry.door.port for entry in entries if entry.name == name)
