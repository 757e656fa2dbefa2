"""Binding of granted room to waiting tasks: a grant goes to the best task of its line *at that moment*.

A grant without a task is given back, unless claims to the same cluster are unanswered.
"""

from hanse.core.broker.attempt_withdrawal import AttemptWithdrawal
from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import take_last
from hanse.core.broker.placement import BrokerPlacement
from hanse.model.decision_record import DecisionKind
from hanse.model.messages import Offer

TimedOffer = tuple[int, Offer, int]
"""Cluster, offer, and time at which it must be used or given back."""


class GrantBinding:
    """Grants that one broker has not used yet."""

    def __init__(
        self, context: BrokerContext, placement: BrokerPlacement, withdrawal: AttemptWithdrawal
    ) -> None:
        self.context = context
        self.placement = placement
        self._withdrawal = withdrawal
        self.offers: list[TimedOffer] = []
        """Grants until the end of the conflict window; then they must be used."""
        self.spare_offers: list[TimedOffer] = []
        """Grants without a task, while claims to the same cluster are unanswered; then they are given back.
        If those are refused, these grants may be the cause."""

    def on_offers(self, cluster: int, offers: tuple[Offer, ...]) -> None:
        """Take offers: bind them now, or when the conflict window closes."""
        window = self.context.timings.conflict_window
        for offer in offers:
            self.offers.append((cluster, offer, self.context.now + window))
            self.placement.demand_publisher.on_grant(cluster, offer.line)
        if not window:
            self.bind_offers()

    def bind_offers(self) -> None:
        """Use the collected grants: of several for one line, those with the largest score times prior
        first."""
        demand, offers, self.offers = self.placement.demand_publisher, self.offers, []
        if len(offers) > 1:
            offers.sort(key=lambda item: (-item[1].score * item[1].prior, item[0], item[1].lease))
        for cluster, offer, _ in offers:
            view = self.context.views[cluster]
            if self._is_outbid(offer):
                self.context.mark("broker.outbid")
                self.placement.releases.setdefault(cluster, []).append(offer.lease)
                demand.published[cluster].is_stale = False  # our worse key goes with the release
                demand.best.pop(offer.line, None)  # and to the other wardens
            elif not self._bind(view, offer):
                if view.state.claims:
                    self.context.mark("broker.spared_grant")
                    self.spare_offers.append(
                        (cluster, offer, self.context.now + self.context.timings.grant_lease // 2)
                    )
                else:
                    self._give_back(cluster, offer)
            self.placement.touched_lines.setdefault(offer.line, None)

    def _is_outbid(self, offer: Offer) -> bool:
        """True if another broker's best task now precedes ours: the warden did not know that our head got
        worse. Releasing the grant keeps the one order of the whole league."""
        if not offer.rival_key or offer.line not in self.context.queue.lines:
            return False
        head = self.context.queue.head(offer.line, self.context.jobs)
        return head is not None and head[0] > offer.rival_key

    def use_spare_offers(self, answered_cluster: int = -1) -> None:
        """Use or release spare grants after claims to a cluster were answered, or after their time."""
        kept = []
        for cluster, offer, until in self.spare_offers:
            view = self.context.views[cluster]
            if cluster == answered_cluster and self._bind(view, offer):
                self.placement.touched_lines.setdefault(offer.line, None)
            elif self.context.now < until and view.state.claims:
                kept.append((cluster, offer, until))
            else:
                self._give_back(cluster, offer)
        self.spare_offers = kept

    def _give_back(self, cluster: int, offer: Offer) -> None:
        self.context.mark("broker.released_grant")
        self.placement.releases.setdefault(cluster, []).append(offer.lease)
        line = self.context.queue.lines.get(offer.line)
        if line is not None and line.count:
            self.placement.demand_publisher.published[cluster].is_stale = True
        self.placement.touched_lines.setdefault(offer.line, None)

    def _bind(self, view: ClusterView, offer: Offer) -> bool:
        context = self.context
        line = context.queue.lines.get(offer.line)
        if line is None or len(offer.nodes) != max(1, line.shape.gang):
            return False
        head = context.queue.head(offer.line, context.jobs)
        if head is None:
            return False
        _, record, group = head
        if not self.placement.can_claim(view, record.shard) or not line.shape.allows_cluster(view.name):
            return False
        tasks = take_last(record.waiting[group], len(offer.nodes))
        if record.spec.gang:
            tasks.sort()  # as in a claim
        context.queue.add(line, -1)
        size = line.shape.ask
        if line.shape.ask_max is not None:
            size = context.sizer.sizes_to_try(line.shape.ask, line.shape.ask_max)[0]
        batch = self.placement.add_batch(view, record, group, tasks, offer.nodes, size, offer.lease)
        self._withdrawal.expect_start(view.index, batch)
        context.record_decision(
            record, group, DecisionKind.PLACED, len(tasks), f"bound room granted by {view.name}"
        )
        return True
