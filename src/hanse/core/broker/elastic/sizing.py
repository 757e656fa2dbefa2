"""Sizes of a broker's elastic tasks.

A sizer that chooses in advance (``policy.priced_sizer``) gives a waiting group its size when it joins the
queue, and again when more is known of its kind. The line's shape then asks for exactly that size, so claims,
demand and grants work as for any other task. A *kind* is the tenant's name of a job and its group.
``elastic.duration_stats`` stores the durations of kinds; ``elastic.advice`` handles the advice of a policy
process, if the sizer uses one.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.elastic.advice_client import AdviceClient, AdviceState
from hanse.core.broker.elastic.advice_request import GROUPS_SHOWN_MAX, Group, build_advice_request
from hanse.core.broker.elastic.duration_stats import DurationStatsState, DurationStatsStore
from hanse.core.broker.finish_estimates import FinishEstimates
from hanse.core.broker.job_table import JobRecord, kind_of, shape_of
from hanse.model.advice import Advice
from hanse.model.decision_record import DecisionKind
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.effects import RequestAdvice
from hanse.model.events import AdviceReceived
from hanse.model.ids import SECOND, JobId
from hanse.model.messages import ResourceUsage, Shape
from hanse.model.resources import Resources
from hanse.policy.interface import ElasticFacts
from hanse.policy.priced_sizer import WAIT_MAX, explain_size, markup, rank_by_cost, sizes_between

TRIED_MIN: Final = 3
"""Completed tasks of a size that are needed before its believed cost is used to judge others."""


class SizingState(msgspec.Struct, rename={"duration_stats": "experience"}):
    """State of the sizing, as it is dumped."""

    duration_stats: DurationStatsState
    advice: AdviceState


class ElasticSizing:
    """Sizes of one broker's elastic groups."""

    def __init__(self, context: BrokerContext, estimates: FinishEstimates) -> None:
        self.context = context
        self._estimates = estimates
        self.duration_stats = DurationStatsStore(context.gossip.peers)
        self.advice = AdviceClient(context)
        self.waiting: dict[str, dict[Group, None]] = {}
        """Kind -> groups that were sized in advance and are in a line."""
        self._holding: dict[JobId, None] = {}
        """Jobs that may have sized tasks on nodes; pruned when advice is requested."""

    # --- choosing ------------------------------------------------------------------------------------------

    def facts(self, record: JobRecord, group: int) -> ElasticFacts:
        """Return the facts that a sizer may use for a group that has a range."""
        part = record.spec.groups[group]
        assert part.ask_max is not None
        return ElasticFacts(
            part.ask,
            part.ask_max,
            part.speed_up,
            part.duration or 0,
            self.duration_stats.combined_stats(kind_of(record.spec, group)),
            (self.context.now - record.served[group]) // SECOND,
        )

    def shape(self, record: JobRecord, group: int) -> tuple[Shape, str]:
        """Return the shape in which a group's tasks wait, and the reason of its size, if one was chosen."""
        shape = shape_of(record.spec, group, 0, self._estimates.shape_kind(record.spec, group))
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
                return sized, self._explain_rule(record, group, chosen.reason)
        return shape, ""

    def _apply_advice(
        self, record: JobRecord, group: int, facts: ElasticFacts, shape: Shape
    ) -> tuple[Shape, str] | None:
        """Return the shape and reason by advice; None if none applies, or the group has waited too long."""
        advice = self._advice_for(record, group)
        if advice is None or facts.waited_seconds >= WAIT_MAX:
            return None
        size = _size(facts, advice)
        assert size is not None, "advice was validated when it was received"
        sized = msgspec.structs.replace(shape, ask=size, ask_max=None)
        if not self._fits(sized):
            return None
        comparison = self.advice.guard.describe(kind_of(record.spec, group))
        return sized, f"by the network: {explain_size(facts, size)}; guard: {comparison}"

    def _explain_rule(self, record: JobRecord, group: int, reason: str) -> str:
        """Explain why the rule chose, if the network could have chosen."""
        if not self.context.sizer.takes_advice:
            return reason
        outcome = self.advice.find_outcome(record.id, group)
        suspension = self.advice.guard.find_suspension(kind_of(record.spec, group), self.context.now)
        if suspension:
            return f"by the rule: {reason}; the network is put aside: {suspension}"
        if outcome is None:
            return f"by the rule: {reason}; no advice yet"
        return f"by the rule: {reason}; " + (
            "its turn" if outcome.advice is None else "it has waited too long"
        )

    def _fits(self, shape: Shape) -> bool:
        return any(view.can_ever_hold(shape) for view in self.context.views)

    def join(self, record: JobRecord, group: int) -> int:
        """Add a group to the line of its shape; return the number of the line."""
        shape, reason = self.shape(record, group)
        if reason:
            self.waiting.setdefault(kind_of(record.spec, group), {})[record.id, group] = None
            self._record_decision(record, group, DecisionKind.SIZED, record.unfinished[group], reason)
            self.advice.request_soon()
        return self.context.queue.join(shape)

    def _record_decision(
        self, record: JobRecord, group: int, kind: DecisionKind, tasks: int, reason: str
    ) -> None:
        """Record a decision that leaves the group's last decision about waiting unchanged."""
        previous, record.last_decision[group] = record.last_decision[group], ""
        self.context.record_decision(record, group, kind, tasks, reason)
        record.last_decision[group] = previous

    def leave(self, record: JobRecord, group: int) -> None:
        """Remove a group that is in no line any more."""
        kind = kind_of(record.spec, group)
        groups = self.waiting.get(kind)
        if groups is not None and groups.pop((record.id, group), True) is None and not groups:
            del self.waiting[kind]

    def note_placed(self, record: JobRecord, group: int, tasks: list[int], size: Resources) -> None:
        """Note that tasks of a group with a range are on their way to their nodes."""
        if self.context.queue.lines[record.lines[group]].shape.ask_max is not None:
            return  # not sized in advance
        record.sizes.update(dict.fromkeys(tasks, size))
        record.served[group] = self.context.now
        if self.context.sizer.takes_advice:
            advice = self._advice_for(record, group)
            followed = advice is not None and (advice.cpu, advice.gpu) == (size.cpu, size.gpu)
            record.placed.update(dict.fromkeys(tasks, (self.context.now, followed)))
            self._holding[record.id] = None

    def rank_by_advice(self, record: JobRecord, group: int, views: list[ClusterView]) -> list[ClusterView]:
        """Return the clusters to search, the advised one first."""
        advice = (
            self._advice_for(record, group) if self.context.sizer.takes_advice and len(views) > 1 else None
        )
        if advice is None:
            return views
        return sorted(views, key=lambda view: view.name != advice.cluster)

    def _advice_for(self, record: JobRecord, group: int) -> Advice | None:
        outcome = self.advice.find_outcome(record.id, group)
        return outcome.advice if outcome is not None else None

    def find_long_waiting(self) -> list[Group]:
        """Return the groups that were sized in advance and have waited for a second or more."""
        before = self.context.now - SECOND
        jobs = self.context.jobs
        groups = sorted([group for groups in self.waiting.values() for group in groups])
        return [(job, group) for job, group in groups if jobs[job].served[group] <= before]

    # --- learning ------------------------------------------------------------------------------------------

    def on_task_succeeded(
        self, record: JobRecord, index: int, usage: ResourceUsage | None
    ) -> Sequence[Group]:
        """Learn from a task that succeeded; return the groups to size again."""
        size = record.sizes.get(index)
        if size is None or usage is None or usage.run_time <= 0:
            return ()
        group = record.group_of(index)
        kind = kind_of(record.spec, group)
        if self.context.sizer.takes_advice:
            self._judge(record, index, size, usage.run_time)
        self.duration_stats.add(kind, size.cpu, size.gpu, usage.run_time)
        groups = sorted(self.waiting.get(kind, ()))
        if groups:
            self.advice.request_soon()
        return groups

    def _judge(self, record: JobRecord, index: int, size: Resources, run_time: int) -> None:
        """Report a task's cost and slowdown to the guard, by the beliefs from before its end."""
        group = record.group_of(index)
        kind = kind_of(record.spec, group)
        _, advised = record.placed.pop(index, (0, False))
        facts = self.facts(record, group)
        tried = [(seen.cpu, seen.gpu) for seen in facts.duration_stats if seen.count >= TRIED_MIN]
        best = next((one for one in rank_by_cost(facts) if (one.size.cpu, one.size.gpu) in tried), None)
        if best is None:
            return  # no size was tried often enough to be compared with
        cost = run_time * markup(facts.least, size) / max(1.0, best.cost)
        slowdown = (self.context.now - record.accepted_at) / max(1.0, best.duration)
        verdict = self.advice.guard.on_task_ended(kind, cost, slowdown, advised, self.context.now)
        if verdict:
            self.context.mark("broker.advice_guarded")
            self.advice.forget(self.waiting.get(kind, ()))
            self._record_decision(
                record, group, DecisionKind.GUARDED, 1, f"the network is put aside for {kind}: {verdict}"
            )

    def send_updates(self) -> None:
        """Send the peers, with every heartbeat, the sums that they do not have yet."""
        context, state = self.context, self.duration_stats.state
        if not state.version and not state.peers:
            return  # no broker has seen an elastic task end
        for peer, update in self.duration_stats.make_updates(context.gossip.is_alive):
            context.links.send_soft(context.effects, peer, update)

    def on_duration_stats_update(self, peer: str, update: DurationStatsUpdate) -> list[Group]:
        """Apply the sums of a peer; return the groups to size again."""
        kinds = self.duration_stats.on_duration_stats_update(peer, update)
        if kinds:
            self.context.mark("broker.learned_from_peer")
        return sorted([group for kind in kinds for group in self.waiting.get(kind, ())])

    # --- advice --------------------------------------------------------------------------------------------

    def request_advice(self) -> None:
        """Request advice, if the last request is not too recent and a group waits."""
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
        """True if advice for a group would count."""
        if self.advice.guard.find_suspension(kind, self.context.now):
            return False
        outcome = self.advice.find_outcome(job, group)
        return outcome is None or outcome.advice is not None

    def on_advice_received(self, event: AdviceReceived) -> list[Group]:
        """Apply advice; return the groups to size again."""
        if not self.advice.is_current(event):
            return []
        return [
            (advice.job, advice.group)
            for advice in event.choices[:GROUPS_SHOWN_MAX]
            if self._follow_advice(advice)
        ]

    def _follow_advice(self, advice: Advice) -> bool:
        """True if advice is followed: it is valid, and its group waits."""
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
        kind = kind_of(record.spec, advice.group)
        waits = (advice.job, advice.group) in self.waiting.get(kind, ())
        if not waits or not record.waiting[advice.group]:
            context.mark("broker.advice_late")
            return False
        return self.advice.follow(kind, advice)

    # --- state ---------------------------------------------------------------------------------------------

    def restore(self, state: SizingState, jobs: dict[JobId, JobRecord]) -> None:
        """Restore a dumped state."""
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
                    self.waiting.setdefault(kind_of(record.spec, group), {})[record.id, group] = None

    def dump(self) -> SizingState:
        """Return the state to be dumped."""
        return SizingState(self.duration_stats.state, self.advice.state)

    def check(self) -> None:
        """Assert invariants."""
        self.duration_stats.check()
        self.advice.check()


def _size(facts: ElasticFacts, advice: Advice) -> Resources | None:
    """Return the advised size if it is on the ladder; None otherwise."""
    sizes = sizes_between(facts.least, facts.most)
    return next((size for size in sizes if (size.cpu, size.gpu) == (advice.cpu, advice.gpu)), None)
