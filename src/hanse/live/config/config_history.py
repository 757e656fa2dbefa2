"""History of a member's settings, so that a journal is replayed under the settings it was written under.

Other settings give another state. So every change is recorded with the journal position after which it holds,
and a replay changes its machine at the same position: the state is carried over into a machine with the new
settings. Settings that would break a promise made under the old ones are refused when the member starts.
"""

from pathlib import Path
from typing import Final

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, WardenConfig
from hanse.core.warden.warden import Warden
from hanse.league.config import LeagueConfig, LeagueError, PolicyConfig
from hanse.model.resources import Resources
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.registry import NODE_RANKERS, RegistryError, make_policies
from hanse.security.atomic_files import PRIVATE, replace

CONFIG_HISTORY_FILE: Final = "eras.json"


class BrokerSettings(msgspec.Struct, frozen=True, tag="broker"):
    """Settings that decide what a broker does with its events."""

    config: BrokerConfig
    policy: PolicyConfig

    def make_machine(self) -> Broker:
        """Make a broker with these settings."""
        policy = self.policy
        try:
            chosen = make_policies(policy.order, policy.placer, policy.rank, policy.sizer)
        except RegistryError as error:
            raise LeagueError(
                f"{self.config.name} has used a policy that is not here now: {error}"
            ) from error
        return Broker(self.config, *chosen)


class WardenSettings(msgspec.Struct, frozen=True, tag="warden"):
    """Settings that decide what a warden does with its events."""

    config: WardenConfig
    node_ranker: str = FirstNodeRanker.name
    """Older records have none: there was only this one."""

    def make_machine(self) -> Warden:
        """Make a warden with these settings."""
        try:
            return Warden(self.config, NODE_RANKERS.get(self.node_ranker)())
        except RegistryError as error:
            raise LeagueError(
                f"{self.config.name} has used a policy that is not here now: {error}"
            ) from error


MemberSettings = BrokerSettings | WardenSettings
JournalledMachine = Broker | Warden


class ConfigEntry(msgspec.Struct, frozen=True):
    """Settings, and the number of the record after which they hold."""

    after: int
    settings: MemberSettings


class MachineReplay:
    """Replay of a member's machine, which changes to the next settings at each recorded position."""

    def __init__(self, entries: list[ConfigEntry], position: int, snapshot: bytes | None) -> None:
        self._later_entries = [entry for entry in entries if entry.after > position]
        earlier = [entry for entry in entries if entry.after <= position]
        assert earlier, "settings on record begin with the first event"
        self.settings = earlier[-1].settings
        self.machine: JournalledMachine = self.settings.make_machine()
        if snapshot is not None:
            self.machine.restore(snapshot)

    def advance(self, position: int) -> None:
        """Change the settings if the next ones hold after this record."""
        while self._later_entries and self._later_entries[0].after <= position:
            self.change_settings(self._later_entries.pop(0).settings)

    def change_settings(self, settings: MemberSettings) -> None:
        """Carry the state over into a machine with other settings."""
        state = self.machine.dump()
        self.settings, self.machine = settings, settings.make_machine()
        self.machine.restore(state)


def member_settings(league: LeagueConfig, member: str) -> MemberSettings:
    """Return the settings that the league file gives a member now."""
    if any(entry.name == member for entry in league.brokers):
        return BrokerSettings(league.broker_config(member), league.policy)
    return warden_settings(league, member)


def warden_settings(league: LeagueConfig, member: str) -> WardenSettings:
    """Return the settings that the league file gives a warden now."""
    return WardenSettings(league.warden_config(member), league.policy.node_ranker)


def read_config_history(directory: Path, current: MemberSettings) -> list[ConfigEntry]:
    """Return the recorded settings; a member without a record has always had the current ones."""
    try:
        return _decode((directory / CONFIG_HISTORY_FILE).read_bytes())
    except FileNotFoundError:
        return [ConfigEntry(0, current)]
    except msgspec.MsgspecError as error:
        raise LeagueError(
            f"{directory / CONFIG_HISTORY_FILE} is damaged: {error}. Restore it from a backup"
        ) from None


def write_config_history(directory: Path, entries: list[ConfigEntry]) -> None:
    """Write the recorded settings durably."""
    replace(directory / CONFIG_HISTORY_FILE, _encode(entries), PRIVATE)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[ConfigEntry]).decode


def settings_problem(machine: JournalledMachine, settings: MemberSettings) -> str:
    """Return why a machine's state cannot be carried over into these settings; empty if it can."""
    if isinstance(machine, Broker) and isinstance(settings, BrokerSettings):
        return _broker_settings_problem(machine.config, settings.config)
    assert isinstance(machine, Warden), "a member changes its settings, not its role"
    assert isinstance(settings, WardenSettings)
    return _warden_settings_problem(machine, settings.config)


def _broker_settings_problem(old: BrokerConfig, new: BrokerConfig) -> str:
    for kind, before, after in (
        ("broker", old.brokers, new.brokers),
        ("cluster", old.clusters, new.clusters),
    ):
        if after[: len(before)] != before:
            missing = next(name for at, name in enumerate(before) if at >= len(after) or after[at] != name)
            return (
                f"the {kind} {missing} is no longer at its place in the league file; members are numbered by "
                f"their places: put it back, and add new ones at the end"
            )
    return ""


def _warden_settings_problem(machine: Warden, new: WardenConfig) -> str:
    old = machine.config
    if new.brokers[: len(old.brokers)] != old.brokers:
        return (
            "a broker is no longer at its place in the league file: put it back, and add new ones at the end"
        )
    if len(new.nodes) < len(old.nodes):
        return (
            f"cluster {new.name} has {len(new.nodes)} nodes in the league file and had {len(old.nodes)}: "
            f"nodes are numbered by their places, so leave the line and close the node with 'hanse drain'"
        )
    in_use = machine.resources_in_use()
    for number, (node, used) in enumerate(zip(new.nodes, in_use, strict=False)):
        if node.runner != old.nodes[number].runner and used != Resources():
            return f"node {number} of {new.name} has tasks and cannot go to another runner: drain it first"
        if not used.fits(node.capacity):
            return f"node {number} of {new.name} would have less than its tasks use: drain it first"
    return ""
