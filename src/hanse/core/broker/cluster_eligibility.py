"""Which clusters a broker may use, and what becomes of its tasks at one that is silent or has left.

A takeover needs the word of every cluster that its bidder knows. A broker of an older version of the league
file does not know the newest clusters, so nobody may use these while such a broker could take over: a cluster
is opened when every other broker is known, by gossip, to live by the version in which that cluster joined, or
a later one. Versions only rise, so what is open stays open (ADR 0039).

A cluster that has retired is closed for good. It left with nothing running and with every end settled; a
claim that was on its way to it will never be answered. After the time in which all leases run out, its tasks
are lost, and placed elsewhere. This includes tasks of jobs that wait for silent clusters. A cluster may also
have been retired because it was gone: then what it had may have begun, so tasks that must not run twice fail.
"""

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import CLAIMED, RUNNING
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import RequestSnapshot


class ClusterEligibility:
    """The clusters of one broker."""

    def __init__(self, context: BrokerContext, lifecycle: JobLifecycle) -> None:
        self.context = context
        self.lifecycle = lifecycle
        config = context.config
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
        """Open clusters that everybody knows by now."""
        if not self.not_open_yet:
            return
        least = self.context.membership.least_version()
        for name, since in list(self.not_open_yet.items()):
            if since <= least:
                del self.not_open_yet[name]
                self.context.view_by_name[name].is_open = True

    def open_known(self) -> None:
        """The same after gossip: ask for the whole state of what has opened."""
        context, before = self.context, list(self.not_open_yet)
        self.review()
        for name in before:
            if name not in self.not_open_yet:
                context.mark("broker.opened_cluster")
                context.links.send_soft(
                    context.effects, name, RequestSnapshot(context.view_by_name[name].cluster)
                )

    def give_up(self, view: ClusterView) -> None:
        """Nobody has heard from a cluster for so long that its movable attempts have surely ended."""
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
        why = f"{view.name} {'has left the league' if has_left else 'cannot be reached'}"
        for record in list(context.jobs.values()):
            if record.spec.unreachable is not UnreachablePolicy.MOVE and not has_left:
                continue
            for index, state in enumerate(record.state):
                if CLAIMED <= state <= RUNNING and record.place[index] == view.index:
                    context.mark("broker.moved_task")
                    record.withdrawn.pop(index, None)
                    self.lifecycle.on_attempt_lost(record, index, why)

    def check(self) -> None:
        """What is open is what everybody knows."""
        least = self.context.membership.least_version()
        assert all(since > least for since in self.not_open_yet.values()), (
            f"{self.context.config.name} waits in vain"
        )
