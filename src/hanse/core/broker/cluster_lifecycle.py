"""Life cycle of clusters at a broker: new ones open, silent ones are given up, retired ones close for good.

A takeover needs the agreement of every cluster that the bidder knows. A broker with an older version of the
league file does not know the newest clusters. No broker may use such a cluster while a broker that does not
know it could take over. A cluster opens when gossip shows that every other broker has the version in which
the cluster joined, or a later one. Versions only rise, so an open cluster stays open (ADR 0039).

A retired cluster is closed permanently. It left with nothing running and with every end acknowledged. No
claim to it will be answered. When all leases have expired, the broker counts its tasks there as lost and
places them elsewhere, also for jobs with ``unreachable: wait``. A cluster may also have been retired because
it vanished: its attempts may have started, so tasks that must not run twice fail.
"""

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import CLAIMED, RUNNING
from hanse.core.broker.loss_policy import lost_end
from hanse.core.warden.runner_sessions import lease_span
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import RequestSnapshot


class ClusterLifecycle:
    """Tracker of the clusters that one broker may use."""

    def __init__(self, context: BrokerContext, lifecycle: JobLifecycle) -> None:
        self.context = context
        self.lifecycle = lifecycle
        config = context.config
        timings, grace = config.timings, config.timings.lease_grace
        spans = lease_span(timings.cluster_lease, grace), lease_span(timings.runner_lease, grace)
        self._give_up_after = sum(spans)
        """Time without a heartbeat from a cluster after which all its movable attempts have ended."""
        self.not_open_yet: dict[str, int] = {
            name: since
            for name, since in zip(config.clusters, config.clusters_since, strict=False)
            if since > 0 and name not in config.retired
        }
        """Clusters that are not open yet, and the version in which each joined."""
        for view in context.views:
            view.is_open = view.name not in config.retired and view.name not in self.not_open_yet
        self.review()

    def review(self) -> None:
        """Open the clusters that every broker knows by now."""
        if not self.not_open_yet:
            return
        least = self.context.gossip.least_version()
        for name, since in list(self.not_open_yet.items()):
            if since <= least:
                del self.not_open_yet[name]
                self.context.view_by_name[name].is_open = True

    def open_known(self) -> None:
        """Open the clusters that every broker knows, after gossip, and request their snapshots."""
        context, before = self.context, list(self.not_open_yet)
        self.review()
        for name in before:
            if name not in self.not_open_yet:
                context.mark("broker.opened_cluster")
                context.links.send_soft(
                    context.effects, name, RequestSnapshot(context.view_by_name[name].cluster)
                )

    def give_up_silent(self, now: int) -> bool:
        """Give up the clusters that were silent for so long that their movable attempts have certainly ended;
        return whether there were any."""
        before, any_silent = now - self._give_up_after, False
        for view in self.context.views:
            if view.state.renewed_at < before and not view.state.given_up:
                any_silent = True
                self._give_up(view)
        return any_silent

    def _give_up(self, view: ClusterView) -> None:
        context, view_state = self.context, view.state
        context.mark("broker.gave_cluster_up")
        view_state.given_up = True
        for shard, number in view_state.rounds.items():
            view_state.least_round[shard] = number + 1
        has_left = view.name in context.config.retired
        if has_left:
            view.abandon_claims()
            if view_state.left_at < 0:
                view_state.left_at = context.now
        reason = f"{view.name} {'has left the league' if has_left else 'cannot be reached'}"
        for record in list(context.jobs.values()):
            if record.spec.unreachable is not UnreachablePolicy.MOVE and not has_left:
                continue
            for index, state in enumerate(record.state):
                if CLAIMED <= state <= RUNNING and record.place[index] == view.index:
                    context.mark("broker.moved_task")
                    record.withdrawn.pop(index, None)
                    end = lost_end(record, index, record.attempt[index], reason)
                    self.lifecycle.on_attempt_lost(record, index, reason, end)

    def check(self) -> None:
        """Assert that only clusters unknown to some broker are closed."""
        least = self.context.gossip.least_version()
        assert all(since > least for since in self.not_open_yet.values()), (
            f"{self.context.config.name} keeps a cluster closed that all know"
        )
