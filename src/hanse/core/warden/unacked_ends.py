"""Ends of attempts that a warden keeps until their owner has them safe."""

from collections.abc import Iterable

from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, ShardId


class UnackedEnds:
    """Ends that no owner has acknowledged yet."""

    __slots__ = ("by_attempt",)

    def __init__(self) -> None:
        self.by_attempt: dict[tuple[TaskId, int], tuple[ShardId, AttemptEnd]] = {}
        """Task and attempt -> shard and end."""

    def __len__(self) -> int:
        return len(self.by_attempt)

    def add(self, shard: ShardId, end: AttemptEnd) -> None:
        """Keep the end of an attempt."""
        self.by_attempt[end.task, end.attempt] = (shard, end)

    def forget(self, attempts: Iterable[tuple[TaskId, int]]) -> None:
        """Forget the ends of these attempts, as far as they are known."""
        forget = self.by_attempt.pop
        for key in attempts:
            forget(key, None)

    def find(self, shard: ShardId) -> list[AttemptEnd]:
        """Return a shard's ends, the oldest first."""
        return [end for name, end in self.by_attempt.values() if name == shard]

    def has_shard(self, shard: ShardId) -> bool:
        """True if an end of this shard is kept."""
        return any(name == shard for name, _ in self.by_attempt.values())
