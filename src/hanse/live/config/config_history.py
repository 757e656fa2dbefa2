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
from hanse.live.config.league import League, LeagueError, Policies
from hanse.model.resources import Resources
from hanse.policy.cluster_rankers import CLUSTER_RANKERS
from hanse.policy.placers import PLACERS
from hanse.policy.queue_orders import QUEUE_ORDERS
from hanse.policy.sizers import SIZERS
from hanse.security.atomic_files import PRIVATE, replace

ERAS: Final = "eras.json"


class BrokerSettings(msgspec.Struct, frozen=True, tag="broker"):
    """Settings that decide what a broker does with its events."""

    config: BrokerConfig
    policy: Policies

    def machine(self) -> Broker:
        """Make a broker with these settings."""
        policy = self.policy
        return Broker(
            self.config,
            QUEUE_ORDERS[policy.order](),
            PLACERS[policy.placer](),
            CLUSTER_RANKERS[policy.rank](),
            SIZERS[policy.sizer](),
        )


class WardenSettings(msgspec.Struct, frozen=True, tag="warden"):
    """Settings that decide what a warden does with its events."""

    config: WardenConfig

    def machine(self) -> Warden:
        """Make a warden with these settings."""
        return Warden(self.config)


Settings = BrokerSettings | WardenSettings
Replayed = Broker | Warden


class Era(msgspec.Struct, frozen=True):
    """Settings, and the number of the record after which they hold."""

    after: int
    settings: Settings


class Past:
    """Replay of a member's machine, which changes to the next settings at each recorded position."""

    def __init__(self, eras: list[Era], position: int, snapshot: bytes | None) -> None:
        self._left = [era for era in eras if era.after > position]
        begun = [era for era in eras if era.after <= position]
        assert begun, "settings on record begin with the first event"
        self.settings = begun[-1].settings
        self.machine: Replayed = self.settings.machine()
        if snapshot is not None:
            self.machine.restore(snapshot)

    def reached(self, position: int) -> None:
        """Change the settings if the next ones hold after this record."""
        while self._left and self._left[0].after <= position:
            self.change(self._left.pop(0).settings)

    def change(self, settings: Settings) -> None:
        """Carry the state over into a machine with other settings."""
        state = self.machine.dump()
        self.settings, self.machine = settings, settings.machine()
        self.machine.restore(state)


def settings_of(league: League, member: str) -> Settings:
    """Return the settings that the league file gives a member now."""
    if any(entry.name == member for entry in league.brokers):
        return BrokerSettings(league.broker_config(member), league.policy)
    return WardenSettings(league.warden_config(member))


def read_eras(directory: Path, today: Settings) -> list[Era]:
    """Return the recorded settings; a member without a record has always had the current ones."""
    try:
        return _decode((directory / ERAS).read_bytes())
    except FileNotFoundError:
        return [Era(0, today)]
    except msgspec.MsgspecError as error:
        raise LeagueError(f"{directory / ERAS} is damaged: {error}. Restore it from a backup") from None


def write_eras(directory: Path, eras: list[Era]) -> None:
    """Write the recorded settings durably."""
    replace(directory / ERAS, _encode(eras), PRIVATE)


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Era]).decode


def objection(machine: Replayed, settings: Settings) -> str:
    """Return why a machine's state cannot be carried over into these settings; empty if it can."""
    if isinstance(machine, Broker) and isinstance(settings, BrokerSettings):
        return _broker_objection(machine.config, settings.config)
    assert isinstance(machine, Warden), "a member changes its settings, not its role"
    assert isinstance(settings, WardenSettings)
    return _warden_objection(machine, settings.config)


def _broker_objection(old: BrokerConfig, new: BrokerConfig) -> str:
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


def _warden_objection(machine: Warden, new: WardenConfig) -> str:
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
    held = machine.resources_in_use()
    for number, (node, used) in enumerate(zip(new.nodes, held, strict=False)):
        if node.runner != old.nodes[number].runner and used != Resources():
            return f"node {number} of {new.name} has tasks and cannot go to another runner: drain it first"
        if not used.fits(node.capacity):
            return f"node {number} of {new.name} would have less than its tasks use: drain it first"
    return ""
