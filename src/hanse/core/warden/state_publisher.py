"""Publication of a cluster's state to the brokers: heartbeats, deltas and snapshots, all soft messages.

A broker gets a snapshot when it registers a shard or asks for one, and deltas from then on. Deltas wait for
``Timings.delta_linger``, so that changes travel together; the reply to a claim carries one at once.
"""

from hanse.core.config import WardenConfig
from hanse.core.messaging.link import NEVER, LinkSet
from hanse.core.warden.drains import Drains
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ownership import Rounds
from hanse.model.effects import Effect
from hanse.model.messages import ClusterDelta, ClusterSnapshot, Delta, WardenHeartbeat
from hanse.policy.node_columns import mask_indices


class StatePublisher:
    """Publication of one warden's state."""

    def __init__(self, config: WardenConfig, ledger: Ledger, drains: Drains, links: LinkSet) -> None:
        self.config = config
        self.ledger, self.drains, self.links = ledger, drains, links
        self.epoch = 0
        """Number of starts of the warden."""
        self.sent_versions: dict[str, int] = {}
        """Version that each broker was sent last; 0: it has no snapshot."""
        self.beat_at = NEVER
        """Time of the next heartbeats."""
        self.delta_at = NEVER
        """Time of the next deltas; ``NEVER``: none are scheduled."""
        self.checked_version = 0
        """Version at which unsent changes were last looked for."""
        self._layout = (
            tuple(ledger.capacity),
            tuple([node.attributes for node in config.nodes]),
            tuple(mask_indices(ledger.reserve, ledger.nodes)),
            config.brokers,
        )
        """Fields of a snapshot that never change."""

    def boot(self, epoch: int, now: int) -> None:
        """Begin a new life: all brokers get a heartbeat at once."""
        self.epoch, self.beat_at = epoch, now
        for broker in self.config.active_brokers:
            self.sent_versions.setdefault(broker, 0)

    def send_heartbeat(self, effects: list[Effect], now: int, broker: str, rounds: Rounds) -> None:
        """Send one broker a heartbeat, which asks it to renew the leases of its shards."""
        ledger = self.ledger
        beat = WardenHeartbeat(ledger.cluster, self.epoch, now, ledger.version, rounds, self.drains.reported)
        self.links.send_soft(effects, broker, beat)

    def send_deltas(self, effects: list[Effect]) -> None:
        """Send every broker what has changed since the last delta to it; most share the same delta."""
        self.delta_at = NEVER
        version = self.ledger.version
        changes: dict[int, ClusterDelta] = {}
        for broker in self.config.active_brokers:
            since = self.sent_versions.get(broker, 0)
            if 0 < since < version:
                change = changes.get(since)
                if change is None:
                    change = changes[since] = ClusterDelta(self.ledger.delta(self.epoch, since))
                self.sent_versions[broker] = version
                self.links.send_soft(effects, broker, change)

    def take_delta(self, broker: str) -> Delta | None:
        """Return the changes that a broker has not been sent, and count them as sent; None: no changes."""
        self.ledger.publish()
        since = self.sent_versions.get(broker, 0)
        if since >= self.ledger.version or since == 0:
            return None
        self.sent_versions[broker] = self.ledger.version
        return self.ledger.delta(self.epoch, since)

    def send_snapshot(self, effects: list[Effect], broker: str) -> None:
        """Send a broker the whole state."""
        ledger = self.ledger
        ledger.publish()
        self.sent_versions[broker] = ledger.version
        offered = tuple(ledger.advertised_free_all(range(ledger.nodes)))
        snapshot = ClusterSnapshot(
            ledger.cluster, self.epoch, ledger.version, ledger.dimensions, *self._layout, offered
        )
        self.links.send_soft(effects, broker, snapshot)

    def schedule_deltas(self, now: int) -> None:
        """Schedule deltas if advertised room has changed and some broker has not been told."""
        self.ledger.publish()
        version = self.ledger.version
        if self.checked_version == version or self.delta_at < NEVER:
            return
        self.checked_version = version
        for sent_version in self.sent_versions.values():
            if 0 < sent_version < version:
                self.delta_at = now + self.config.timings.delta_linger
                return
