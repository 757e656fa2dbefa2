"""State shared by the parts of a broker: configuration, links, jobs, queue, and the effects of the current
step."""

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.end_acks import EndAcks
from hanse.core.broker.failover.owned_shards import OwnedShards
from hanse.core.broker.gossip import BrokerGossip
from hanse.core.broker.history_emitter import JobHistory
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.queue import BrokerQueue
from hanse.core.config import BrokerConfig
from hanse.core.messaging.link import LinkSet
from hanse.model.decision_record import ConsideredCluster, DecisionKind, DecisionRecord
from hanse.model.effects import Effect, RecordDecision
from hanse.model.ids import JobId
from hanse.policy.interface import ClusterRanker, Placer, QueueOrder, Sizer


class BrokerContext:
    """Shared state of the parts of one broker. Only they change it, and only while ``handle`` runs."""

    def __init__(
        self, config: BrokerConfig, order: QueueOrder, placer: Placer, rank: ClusterRanker, sizer: Sizer
    ) -> None:
        self.config = config
        self.timings = config.timings
        self.order, self.placer, self.rank, self.sizer = order, placer, rank, sizer
        self.owned_shards = OwnedShards(config.name)
        self.links = LinkSet(config.name, config.timings, config.retired, self.owned_shards.on_firm_ack)
        self.end_acks = EndAcks(self.links, config.timings.settle_linger)
        self.gossip = BrokerGossip(config)
        self.jobs: dict[JobId, JobRecord] = {}
        self.queue = BrokerQueue()
        self.views = [ClusterView(name, index, config.name) for index, name in enumerate(config.clusters)]
        self.view_by_name = {view.name: view for view in self.views}
        self.seed = 0
        self.steps = 0
        self.now = 0
        self.effects: list[Effect] = []
        self.history = JobHistory(self)
        self.marks: dict[str, int] = {}
        self._unresponsive_after = config.timings.suspect_after + 2 * config.timings.resend_after
        """Time without any acknowledgement after which a peer counts as unreachable."""

    def mark(self, name: str) -> None:
        """Count a rare branch."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def is_reachable(self, peer: str) -> bool:
        """True if a peer is alive, as far as is known, and acknowledges messages. Gossip may arrive over
        other members while copies of jobs do not."""
        return self.gossip.is_alive(peer) and not self.links.link(peer).is_unresponsive(
            self.now, self._unresponsive_after
        )

    def record_decision(
        self, record: JobRecord, group: int, kind: DecisionKind, tasks: int, reason: str,
        considered: list[tuple[str, int]] | None = None,
    ) -> None:  # fmt: skip
        """Record a decision, unless it repeats the last one of the group. ``considered``: clusters searched,
        and the number of tasks that got room in each."""
        if not self.config.decisions:
            return
        summary = kind + ":" + reason
        if record.last_decision[group] == summary:
            return
        record.last_decision[group] = summary
        considered_clusters = tuple(
            [
                ConsideredCluster(name, got, "room in view" if got else "no room in view")
                for name, got in considered or ()
            ]
        )
        decision = DecisionRecord(
            self.now, self.config.name, record.id, group, kind, tasks, reason, considered_clusters
        )
        self.effects.append(RecordDecision(decision))
