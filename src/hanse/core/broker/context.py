"""What the parts of a broker share: its configuration, its post, its jobs and queue, and the commands of
this step."""

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.end_acks import Settling
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.membership import Membership
from hanse.core.broker.queue import Lines
from hanse.core.config import BrokerConfig
from hanse.core.messaging.link import Post
from hanse.model.decision import Answered, Considered, Decision
from hanse.model.effects import Command, Record
from hanse.model.ids import JobId
from hanse.policy.interface import ClusterRank, Placer, QueueOrder, Sizer


class Desk:
    """Shared by the parts of one broker; only they change it, and only while an event is handled."""

    def __init__(
        self, config: BrokerConfig, order: QueueOrder, placer: Placer, rank: ClusterRank, sizer: Sizer
    ) -> None:
        self.config = config
        self.timings = config.timings
        self.order, self.placer, self.rank, self.sizer = order, placer, rank, sizer
        self.post = Post(config.name, config.timings, config.retired)
        self.settling = Settling(self.post, config.timings.settle_linger)
        self.members = Membership(config)
        self.jobs: dict[JobId, JobRecord] = {}
        self.lines = Lines()
        self.views = [ClusterView(name, index, config.name) for index, name in enumerate(config.clusters)]
        self.view_of = {view.name: view for view in self.views}
        self.seed = 0
        self.steps = 0
        self.now = 0
        self.out: list[Command] = []
        self.marks: dict[str, int] = {}

    def mark(self, name: str) -> None:
        """Count a rare branch."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def decide(
        self, record: JobRecord, group: int, answered: Answered, tasks: int, reason: str,
        considered: list[tuple[str, int]] | None = None,
    ) -> None:  # fmt: skip
        """Record an answer, unless it is the one given last. ``considered``: clusters looked at, and how many
        tasks got room in each."""
        if not self.config.decisions:
            return
        told = answered + ":" + reason
        if record.told[group] == told:
            return
        record.told[group] = told
        looked = tuple(
            [
                Considered(name, got, "room in view" if got else "no room in view")
                for name, got in considered or ()
            ]
        )
        decision = Decision(self.now, self.config.name, record.id, group, answered, tasks, reason, looked)
        self.out.append(Record(decision))
