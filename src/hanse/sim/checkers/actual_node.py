"""Real state of a node."""

from hanse.core.config import LOCAL_HOST, NodeConfig
from hanse.model.ids import TaskId, task_text
from hanse.model.resources import Resources


class ActualNode:
    """Real state of a node."""

    __slots__ = (
        "attributes",
        "capacity",
        "cluster",
        "host",
        "index",
        "labels_seen",
        "live_tasks",
        "reserved",
        "runner",
        "used",
    )

    def __init__(self, cluster: str, index: int, config: NodeConfig, reserved: bool) -> None:
        self.cluster = cluster
        self.index = index
        self.capacity = config.capacity
        self.attributes = dict(config.attributes)
        self.runner = config.runner
        self.host = config.host or LOCAL_HOST
        self.reserved = reserved
        self.live_tasks: dict[int, tuple[Resources, tuple[str, ...]]] = {}
        """Live tasks with their sizes and labels."""
        self.used = Resources()
        """Sum of those sizes."""
        self.labels_seen: dict[str, None] = {}
        """Labels of all tasks that ever ran on this node."""

    def describe_use(self, task: int) -> str:
        """Describe the use of the node by tasks other than this one."""
        others = ", ".join(task_text(TaskId(other)) for other in self.live_tasks if other != task)
        return f"{self.used} of {self.capacity} in use, with {others or 'nothing else'} there"
