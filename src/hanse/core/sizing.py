"""How much a broker's elastic tasks are asked for, and what it has learned of them.

A sizer that chooses in advance (``policy.pricing``) gives a waiting group its size when it joins the queue,
and anew when a task of its kind has ended: its line's shape then asks for exactly that, so claims, demand
and grants are as for any other work. A *kind* is what a tenant calls a job and its group: tasks that were
alike so far. What is remembered are sums and counts per kind and size, nothing of any single task.
"""

from typing import Final

import msgspec

from hanse.core.desk import Desk
from hanse.core.jobs import JobRecord, shape_of
from hanse.model.decision import Answered
from hanse.model.ids import MINUTE, JobId
from hanse.model.messages import Shape, Usage
from hanse.policy.interface import ElasticFacts, Seen

KINDS_MAX: Final = 1_000
"""Kinds remembered; the one that was longest without an end is forgotten first."""
SIZES_MAX: Final = 64
"""Sizes remembered of one kind."""

Sums = dict[tuple[int, int], tuple[int, int]]
"""Milli-CPU and GPUs -> microseconds in all, and how many tasks."""


class Sizing:
    """The sizes of one broker's elastic groups."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.experience: dict[str, Sums] = {}
        """By kind."""
        self.waiting: dict[str, dict[tuple[JobId, int], None]] = {}
        """Kind -> groups that were sized in advance and are in a line."""

    def shape(self, record: JobRecord, group: int) -> tuple[Shape, str]:
        """The shape in which a group's tasks wait, and why it has its size, if that was chosen."""
        shape = shape_of(record.spec, group, 0)
        part = record.spec.groups[group]
        if part.ask_max is None:
            return shape, ""
        facts = ElasticFacts(
            part.ask,
            part.ask_max,
            part.speed_up,
            part.duration or 0,
            self._seen(kind_of(record, group)),
            (self.desk.now - record.accepted_at) // MINUTE,
        )
        for chosen in self.desk.sizer.choose(facts):
            sized = msgspec.structs.replace(shape, ask=chosen.size, ask_max=None)
            if chosen.size == part.ask or any(view.takes(sized) for view in self.desk.views):
                return sized, chosen.reason
        return shape, ""

    def join(self, record: JobRecord, group: int) -> int:
        """Put a group into the line of its shape; the line's number."""
        shape, reason = self.shape(record, group)
        if reason:
            self.waiting.setdefault(kind_of(record, group), {})[record.id, group] = None
            told, record.told[group] = record.told[group], ""
            self.desk.decide(record, group, Answered.SIZED, record.unfinished[group], reason)
            record.told[group] = told  # it does not change what the group was told of its waiting
        return self.desk.lines.join(shape)

    def _seen(self, kind: str) -> tuple[Seen, ...]:
        return tuple(
            Seen(cpu, gpu, total, count)
            for (cpu, gpu), (total, count) in self.experience.get(kind, {}).items()
        )

    def left(self, record: JobRecord, group: int) -> None:
        """A group is in no line any more."""
        kind = kind_of(record, group)
        groups = self.waiting.get(kind)
        if groups is not None and groups.pop((record.id, group), True) is None and not groups:
            del self.waiting[kind]

    def learned(self, record: JobRecord, index: int, usage: Usage | None) -> tuple[tuple[JobId, int], ...]:
        """A task has succeeded; the groups whose size should be looked at again."""
        size = record.sizes.get(index)
        if size is None or usage is None or usage.ran <= 0:
            return ()
        kind = kind_of(record, record.group_of(index))
        sums = self.experience.pop(kind, {})
        total, count = sums.get((size.cpu, size.gpu), (0, 0))
        if count or len(sums) < SIZES_MAX:
            sums[size.cpu, size.gpu] = (total + usage.ran, count + 1)
        self.experience[kind] = sums  # the latest last
        if len(self.experience) > KINDS_MAX:
            del self.experience[next(iter(self.experience))]
        return tuple(self.waiting.get(kind, ()))

    def patient(self) -> list[tuple[JobId, int]]:
        """Groups that were sized in advance and have waited for a minute or more."""
        before = self.desk.now - MINUTE
        jobs = self.desk.jobs
        groups = [group for groups in self.waiting.values() for group in groups]
        return [group for group in groups if jobs[group[0]].accepted_at <= before]

    def restore(self, experience: dict[str, list[Seen]], jobs: dict[JobId, JobRecord]) -> None:
        """Take a dumped state."""
        self.experience = {
            kind: {(one.cpu, one.gpu): (one.total, one.count) for one in seen}
            for kind, seen in experience.items()
        }
        self.waiting = {}
        for record in jobs.values():
            for group, part in enumerate(record.spec.groups):
                number = record.lines[group]
                if part.ask_max is None or number < 0:
                    continue
                if self.desk.lines.lines[number].shape.ask_max is None:
                    self.waiting.setdefault(kind_of(record, group), {})[record.id, group] = None

    def dump(self) -> dict[str, list[Seen]]:
        """What was learned, as it is kept."""
        return {kind: list(self._seen(kind)) for kind in self.experience}


def kind_of(record: JobRecord, group: int) -> str:
    """What tasks of this group have in common with those of other jobs."""
    spec = record.spec
    return f"{spec.tenant}/{spec.name}/{spec.groups[group].name}"
