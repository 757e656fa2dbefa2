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
from hanse.core.broker.context import Desk
from hanse.core.broker.job_lifecycle import Careers
from hanse.core.broker.job_table import CLAIMED, RUNNING
from hanse.model.job import Unreachable
from hanse.model.messages import Sync


class Clusters:
    """The clusters of one broker."""

    def __init__(self, desk: Desk, careers: Careers) -> None:
        self.desk = desk
        self.careers = careers
        config = desk.config
        self.waiting: dict[str, int] = {
            name: since
            for name, since in zip(config.clusters, config.clusters_since, strict=False)
            if since > 0 and name not in config.retired
        }
        """Clusters that are not open yet, and the version in which each joined."""
        for view in desk.views:
            view.is_open = view.name not in config.retired and view.name not in self.waiting
        self.review()

    def review(self) -> None:
        """Open clusters that everybody knows by now."""
        if not self.waiting:
            return
        least = self.desk.members.least_version()
        for name, since in list(self.waiting.items()):
            if since <= least:
                del self.waiting[name]
                self.desk.view_of[name].is_open = True

    def open(self) -> None:
        """The same after gossip: ask for the whole state of what has opened."""
        desk, before = self.desk, list(self.waiting)
        self.review()
        for name in before:
            if name not in self.waiting:
                desk.mark("broker.opened_cluster")
                desk.post.soft(desk.out, name, Sync(desk.view_of[name].cluster))

    def give_up(self, view: ClusterView) -> None:
        """Nobody has heard from a cluster for so long that its movable attempts have surely ended."""
        desk, sight = self.desk, view.sight
        desk.mark("broker.gave_cluster_up")
        sight.given_up = True
        for estate, number in sight.rounds.items():
            sight.least_round[estate] = number + 1
        has_left = view.name in desk.config.retired
        if has_left:
            view.abandon()
            if sight.left_at < 0:
                sight.left_at = desk.now
        why = f"{view.name} {'has left the league' if has_left else 'cannot be reached'}"
        for record in list(desk.jobs.values()):
            if record.spec.unreachable is not Unreachable.MOVE and not has_left:
                continue
            for index, state in enumerate(record.state):
                if CLAIMED <= state <= RUNNING and record.place[index] == view.index:
                    desk.mark("broker.moved_task")
                    record.withdrawn.pop(index, None)
                    self.careers.lost(record, index, why)

    def check(self) -> None:
        """What is open is what everybody knows."""
        least = self.desk.members.least_version()
        assert all(since > least for since in self.waiting.values()), f"{self.desk.config.name} waits in vain"
