"""How much a broker's elastic tasks are asked for.

A sizer that chooses in advance (``policy.priced_sizer``) gives a waiting group its size when it joins the
queue, and anew when more is known of its kind: its line's shape then asks for exactly that, so claims, demand
and grants are as for any other work. A *kind* is what a tenant calls a job and its group: tasks that were
alike so far. What is remembered of them is in ``core.broker.elastic.duration_stats``; the advice of a policy
process, where the sizer takes any, in ``core.broker.elastic.advice``.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.elastic.advice import AdviceClient, AdviceState
from hanse.core.broker.elastic.advice_request import GROUPS_SHOWN_MAX, Group, build_advice_request
from hanse.core.broker.elastic.duration_stats import DurationStatsState, DurationStatsStore
from hanse.core.broker.job_table import JobRecord, shape_of
from hanse.model.advice import Advice
from hanse.model.decision import DecisionKind
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.effects import RequestAdvice
from hanse.model.events import AdviceReceived
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import ResourceUsage, Shape
from hanse.model.resources import Resources
from hanse.policy.interface import ElasticFacts
from hanse.policy.priced_sizer import WAIT_MAX, explain_size, markup, rank_by_cost, sizes_between

TRIED_MIN: Final = 3
"""Completed tasks of a size from which on what is believed of it may judge others."""


class SizingState(msgspec.Struct, rename={"duration_stats": "experience"}):
    """All that must outlive the process, as it is dumped."""

    duration_stats: DurationStatsState
    advice: AdviceState


class ElasticSizing:
    """The sizes of one broker's elastic groups."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.duration_stats = DurationStatsStore(context.membership.peers)
        self.advice = AdviceClient(context)
        self.waiting: dict[str, dict[Group, None]] = {}
        """Kind -> groups that were sized in advance and are in a line."""
        self._holding: dict[JobId, None] = {}
        """Jobs that may have sized tasks on nodes; looked at when advice is asked for."""

    # --- choosing ------------------------------------------------------------------------------------------

    def facts(self, record: JobRecord, group: int) -> ElasticFacts:
        """What a sizer may know of a group that has a range."""
        part = record.spec.groups[group]
        assert part.ask_max is not None
        return ElasticFacts(
            part.ask,
            part.ask_max,
            part.speed_up,
            part.duration or 0,
            self.duration_stats.combined_stats(kind_of(record, group)),
            (self.context.now - record.served[group]) // SECOND,
        )

    def shape(self, record: JobRecord, group: int) -> tuple[Shape, str]:
        """The shape in which a group's tasks wait, and why it has its size, if that was chosen."""
        shape = shape_of(record.spec, group, 0)
        part = record.spec.groups[group]
        if part.ask_max is None:
            return shape, ""
        facts = self.facts(record, group)
        if self.context.sizer.takes_advice:
            advised = self._apply_advice(record, group, facts, shape)
            if advised is not None:
                return advised
        for chosen in self.context.sizer.preferred_sizes(facts):
            sized = msgspec.structs.replace(shape, ask=chosen.size, ask_max=None)
            if chosen.size == part.ask or self._fits(sized):
                return sized, self._by_rule(record, group, chosen.reason)
        return shape, ""

    def _apply_advice(
        self, record: JobRecord, group: int, facts: ElasticFacts, shape: Shape
    ) -> tuple[Shape, str] | None:
        """The same by advice, if there is any that counts: whoever has waited too long is the rule's."""
        advice = self._advice(record, group)
        if advice is None or facts.waited_seconds >= WAIT_MAX:
            return None
        size = _size(facts, advice)
        assert size is not None, "advice was looked at when it was taken"
        sized = msgspec.structs.replace(shape, ask=size, ask_max=None)
        if not self._fits(sized):
            return None
        words = self.advice.guard.describe(kind_of(record, group))
        return sized, f"by the network: {explain_size(facts, size)}; guard: {words}"

    def _by_rule(self, record: JobRecord, group: int, reason: str) -> str:
        """Why the rule chose, where it might have been the network."""
        if not self.context.sizer.takes_advice:
            return reason
        given = self.advice.find_outcome(record.id, group)
        aside = self.advice.guard.find_suspension(kind_of(record, group), self.context.now)
        if aside:
            return f"by the rule: {reason}; the network is put aside: {aside}"
        if given is None:
            return f"by the rule: {reason}; no advice yet"
        return f"by the rule: {reason}; " + ("its turn" if given.advice is None else "it has waited too long")

    def _fits(self, shape: Shape) -> bool:
        return any(view.can_ever_hold(shape) for view in self.context.views)

    def join(self, record: JobRecord, group: int) -> int:
        """Put a group into the line of its shape; the line's number."""
        shape, reason = self.shape(record, group)
        if reason:
            self.waiting.setdefault(kind_of(record, group), {})[record.id, group] = None
            self._record_decision(record, group, DecisionKind.SIZED, record.unfinished[group], reason)
            self.advice.request_soon()
        return self.context.queue.join(shape)

    def _record_decision(
        self, record: JobRecord, group: int, answered: DecisionKind, tasks: int, reason: str
    ) -> None:
        """Record a decision that does not change what the group was told of its waiting."""
        told, record.last_decision[group] = record.last_decision[group], ""
        self.context.record_decision(record, group, answered, tasks, reason)
        record.last_decision[group] = told

    def leave(self, record: JobRecord, group: int) -> None:
        """A group is in no line any more."""
        kind = kind_of(record, group)
        groups = self.waiting.get(kind)
        if groups is not None and groups.pop((record.id, group), True) is None and not groups:
            del self.waiting[kind]

    def note_placed(self, record: JobRecord, group: int, tasks: list[int], size: Resources) -> None:
        """Tasks of a group with a range are on their way to their nodes."""
        if self.context.queue.lines[record.lines[group]].shape.ask_max is not None:
            return  # not sized in advance
        record.sizes.update(dict.fromkeys(tasks, size))
        record.served[group] = self.context.now
        if self.context.sizer.takes_advice:
            advice = self._advice(record, group)
            followed = advice is not None and (advice.cpu, advice.gpu) == (size.cpu, size.gpu)
            record.placed.update(dict.fromkeys(tasks, (self.context.now, followed)))
            self._holding[record.id] = None

    def rank_by_advice(self, record: JobRecord, group: int, views: list[ClusterView]) -> list[ClusterView]:
        """The clusters in which to look for room, the advised one first."""
        advice = self._advice(record, group) if self.context.sizer.takes_advice and len(views) > 1 else None
        if advice is None:
            return views
        return sorted(views, key=lambda view: view.name != advice.cluster)

    def _advice(self, record: JobRecord, group: int) -> Advice | None:
        given = self.advice.find_outcome(record.id, group)
        return given.advice if given is not None else None

    def find_long_waiting(self) -> list[Group]:
        """Groups that were sized in advance and have waited for a second or more."""
        before = self.context.now - SECOND
        jobs = self.context.jobs
        groups = sorted([group for groups in self.waiting.values() for group in groups])
        return [(job, group) for job, group in groups if jobs[job].served[group] <= before]

    # --- learning ------------------------------------------------------------------------------------------

    def on_task_succeeded(
        self, record: JobRecord, index: int, usage: ResourceUsage | None
    ) -> Sequence[Group]:
        """A task has succeeded; the groups whose size should be looked at again."""
        size = record.sizes.get(index)
        if size is None or usage is None or usage.run_time <= 0:
            return ()
        group = record.group_of(index)
        kind = kind_of(record, group)
        if self.context.sizer.takes_advice:
            self._judge(record, index, size, usage.run_time)
        self.duration_stats.add(kind, size.cpu, size.gpu, usage.run_time)
        groups = sorted(self.waiting.get(kind, ()))
        if groups:
            self.advice.request_soon()
        return groups

    def _judge(self, record: JobRecord, index: int, size: Resources, ran: int) -> None:
        """Let the guard see what a task took, by what was believed before it ended."""
        group = record.group_of(index)
        kind = kind_of(record, group)
        _, advised = record.placed.pop(index, (0, False))
        facts = self.facts(record, group)
        tried = [(seen.cpu, seen.gpu) for seen in facts.duration_stats if seen.count >= TRIED_MIN]
        best = next((one for one in rank_by_cost(facts) if (one.size.cpu, one.size.gpu) in tried), None)
        if best is None:
            return  # a guess is nothing to be judged by
        cost = ran * markup(facts.least, size) / max(1.0, best.cost)
        slowdown = (self.context.now - record.accepted_at) / max(1.0, best.duration)
        verdict = self.advice.guard.on_task_ended(kind, cost, slowdown, advised, self.context.now)
        if verdict:
            self.context.mark("broker.advice_guarded")
            self.advice.forget(self.waiting.get(kind, ()))
            self._record_decision(
                record, group, DecisionKind.GUARDED, 1, f"the network is put aside for {kind}: {verdict}"
            )

    def send_updates(self) -> None:
        """With every beat: tell the peers what they do not know yet."""
        context, known = self.context, self.duration_stats.state
        if not known.version and not known.peers:
            return  # nobody has seen an elastic task end
        for peer, news in self.duration_stats.make_updates(context.membership.is_alive):
            context.links.send_soft(context.effects, peer, news)

    def on_duration_stats_update(self, peer: str, news: DurationStatsUpdate) -> list[Group]:
        """A peer tells what it has learned; the groups whose size should be looked at again."""
        kinds = self.duration_stats.on_duration_stats_update(peer, news)
        if kinds:
            self.context.mark("broker.learned_from_peer")
        return sorted([group for kind in kinds for group in self.waiting.get(kind, ())])

    # --- advice --------------------------------------------------------------------------------------------

    def request_advice(self) -> None:
        """Ask for advice, if it is not too soon and anybody waits."""
        if self.advice.is_pausing:
            return
        context = self.context
        for job in [job for job in self._holding if job not in context.jobs]:
            del self._holding[job]
        groups = [group for groups in self.waiting.values() for group in groups]
        if not any(self._may_follow(kind, *group) for kind in self.waiting for group in self.waiting[kind]):
            self.advice.clear_request()
            return
        seen = build_advice_request(context, groups, self._holding, self.facts)
        if seen.waiting:
            context.effects.append(RequestAdvice(self.advice.next_number(), seen))
        else:
            self.advice.clear_request()

    def _may_follow(self, kind: str, job: JobId, group: int) -> bool:
        """Whether advice for a group would count."""
        if self.advice.guard.find_suspension(kind, self.context.now):
            return False
        given = self.advice.find_outcome(job, group)
        return given is None or given.advice is not None

    def on_advice_received(self, event: AdviceReceived) -> list[Group]:
        """Advice has come; the groups whose size should be looked at again."""
        if not self.advice.is_current(event):
            return []
        return [
            (advice.job, advice.group)
            for advice in event.choices[:GROUPS_SHOWN_MAX]
            if self._follow_advice(advice)
        ]

    def _follow_advice(self, advice: Advice) -> bool:
        """Whether advice is followed: it makes sense, and its group waits."""
        context = self.context
        record = context.jobs.get(advice.job)
        if record is None:
            context.mark("broker.advice_late")
            return False
        part = record.spec.groups[advice.group] if 0 <= advice.group < len(record.spec.groups) else None
        known = not advice.cluster or advice.cluster in context.view_by_name
        if part is None or part.ask_max is None or not known:
            context.mark("broker.advice_absurd")
            return False
        if _size(self.facts(record, advice.group), advice) is None:
            context.mark("broker.advice_absurd")
            return False
        kind = kind_of(record, advice.group)
        waits = (advice.job, advice.group) in self.waiting.get(kind, ())
        if not waits or not record.waiting[advice.group]:
            context.mark("broker.advice_late")
            return False
        return self.advice.follow(kind, advice)

    # --- state ---------------------------------------------------------------------------------------------

    def restore(self, state: SizingState, jobs: dict[JobId, JobRecord]) -> None:
        """Take a dumped state."""
        self.duration_stats.restore(state.duration_stats)
        self.advice.restore(state.advice)
        self.waiting = {}
        self._holding = {record.id: None for record in jobs.values() if record.placed}
        for record in jobs.values():
            for group, part in enumerate(record.spec.groups):
                number = record.lines[group]
                if part.ask_max is None or number < 0:
                    continue
                if self.context.queue.lines[number].shape.ask_max is None:
                    self.waiting.setdefault(kind_of(record, group), {})[record.id, group] = None

    def dump(self) -> SizingState:
        """The state, as it is kept."""
        return SizingState(self.duration_stats.state, self.advice.state)

    def check(self) -> None:
        """Invariants."""
        self.duration_stats.check()
        self.advice.check()


def kind_of(record: JobRecord, group: int) -> str:
    """What tasks of this group have in common with those of other jobs."""
    spec = record.spec
    return f"{spec.tenant}/{spec.name}/{spec.groups[group].name}"


def _size(facts: ElasticFacts, advice: Advice) -> Resources | None:
    """The size of the ladder that is advised; None if there is none."""
    sizes = sizes_between(facts.least, facts.most)
    return next((size for size in sizes if (size.cpu, size.gpu) == (advice.cpu, advice.gpu)), None)
