"""Bugs planted into the machines or their shell, one at a time: the seeds of the CI run must expose each.

A bug counts as exposed when a seed of the range breaks one of the promises named for it, and the same seed
without the bug breaks none. Seeds known to do so are tried first, so that the test is quick; when the
machines change and they no longer do, the rest of the range is searched, and the test still decides rightly,
only slower.

What each bug looks like from outside, and how far the search from seed 0 went for three seeds that show it:

=========================================  ======================================================  ========
ack before journal                         an acknowledged job, or what a peer counts on, is gone  0 to 7
double release                             a node is given twice: over-commit                      0 to 3
no de-duplication of claims                a task is started twice                                 0 to 19
lease counted from receipt                 a node runs on when its tasks were given away           0 to 89
stale attempt accepted                     a task is settled by an attempt that did not end so     0 to 18
gives up after five denials                an acknowledged task never ends                         0 to 49
news overwrites pending claims             the view is no longer confirmed less pending            0 to 13
late refusal overrides a live grant        a task is placed again while it runs                    0 to 61
adopted estates are never closed           they pile up at wardens and brokers                     0 to 14
closed estates are not fenced              a late registration brings one back                     0 to 169
the adopter is forgotten                   a door does not know who speaks for a job               0 to 8
doors point back                           two doors point at each other                           0 to 8
an older past is not noticed               an acknowledged task never ends                         0 to 9
what was taken is not compared             room stays held, or a task never ends                   0 to 29
newcomers are used at once                 a takeover does not know of them: a task runs twice     one: 118
mail for the retired is kept               it is repeated for ever                                 0 to 47
claims at the retired are waited for       they are never answered                                 two: 277
a broker retires with its jobs             they never end, or a client hears nothing               0 to 419
lost tasks start again                     one that must not run twice does                        1 to 4
what was taken back starts again           the same: it had begun, and that was not told yet       35 to 209
groups that are queued are not told        readers believe that they are blocked                   0 to 3
refusals are not told                      readers believe that the tasks are placed               1 to 3
what wardens have is not told              readers of a taken job know no attempts                 5 to 8
starts of the past are told                readers see a task run that waits                       27 to 49
outdated copies are not told               readers keep them                                       0 to 6
=========================================  ======================================================  ========
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import pytest

from hanse.core.broker import broker as broker_module
from hanse.core.broker import job_lifecycle, withdrawal
from hanse.core.broker.broker import Broker
from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.owned_shards import OwnedShardsState
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.failover.teardown import ShardTeardown
from hanse.core.broker.job_history import JobHistory
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import CLAIMED, PLACED, RUNNING, WAITING, JobRecord
from hanse.core.broker.membership import Membership
from hanse.core.config import BrokerConfig, Timings
from hanse.core.history_check import LinkHistory
from hanse.core.messaging.link import LinkSet
from hanse.core.runner.runner import Runner
from hanse.core.warden import ledger as ledger_module
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ownership import Ownership
from hanse.core.warden.records import AttemptRecord
from hanse.model.effects import Effect
from hanse.model.events import Event
from hanse.model.ids import JobId, TaskId, broker_number, index_of, job_of
from hanse.model.messages import AttemptEnd, Claim, Delta, Envelope, Message, Outcome
from hanse.model.resources import Vector
from hanse.policy.node_columns import NodeColumns
from hanse.registry import make_policies
from hanse.sim.backend import SimulatedBackend
from hanse.sim.chaos import SeedResult, run_seed
from hanse.sim.history_check import PROMISE as HISTORY
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.league import LeagueFactories, PolicyNames
from hanse.sim.shipped_league import shipped_factories

CI_SEEDS = range(500)
"""The range that ``hanse chaos --seeds 500`` runs."""
DENIALS_MAX = 5

Planter = Callable[[pytest.MonkeyPatch, LeagueFactories], LeagueFactories]


class AckFirst(JournalledProcess):
    """Performs an event's commands before the journal has the event."""

    def _delay_effects(self, commands: list[Effect]) -> None:
        self.perform(commands)
        super()._delay_effects([])

    def _crash_at(self, event: Event) -> None:
        assert self._planned_crash is not None
        where, downtime = self._planned_crash
        if where:
            super()._crash_at(event)
            return
        self.world.call_at(self.world.now + downtime, self.restart)
        self.perform(self.machine.handle(event))
        self.crash(self.rng.randint(0, len(self.uncommitted)))
        self._expected_state = None  # the shell believes that the journal has everything


def ack_before_journal(_: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A crash may take back what the world has already seen."""
    return factories._replace(process=AckFirst)


def double_release(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A run's room comes back twice, as far as the node has that much. The ledger's own checks are off."""
    right = Ledger.return_capacity

    def give_back(self: Ledger, runs: Sequence[AttemptRecord]) -> list[int]:
        nodes = right(self, runs)
        for run in runs:
            size = run.size.vector(self.dimensions)
            assert size is not None
            sums = map(sum, zip(self.room.free_of(run.node), size, strict=True))
            self.room.set_free(run.node, tuple(map(min, self.capacity[run.node], sums)))
        return nodes

    def unchecked(capacity: list[Vector]) -> NodeColumns:
        return NodeColumns(capacity, checked=False)

    patch.setattr(Ledger, "return_capacity", give_back)
    patch.setattr(Ledger, "check", lambda _: None)
    patch.setattr(ledger_module, "NodeColumns", unchecked)
    return factories


def no_deduplication(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A claim that the network doubled, or the broker repeated, is taken again."""
    right = LinkSet.receive

    def receive(self: LinkSet, now: int, envelope: Envelope) -> list[Message]:
        link = self.link(envelope.source)
        old = 0 < envelope.seq <= link.received and envelope.session == link.session
        bodies = right(self, now, envelope)
        return [envelope.body] if old and isinstance(envelope.body, Claim) else bodies

    patch.setattr(LinkSet, "receive", receive)
    return factories


def lease_from_receipt(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A runner counts its lease from when the renewal arrived, not from when it asked."""
    handle, renewed = Runner.handle, Runner._renew_lease
    clock: dict[str, int] = {}

    def stamped(self: Runner, event: Event) -> list[Effect]:
        clock[self.name] = event.at
        return handle(self, event)

    def late(self: Runner, now: int, echo: int) -> None:
        renewed(self, now, max(echo, clock[self.name]))

    patch.setattr(Runner, "handle", stamped)
    patch.setattr(Runner, "_renew_lease", late)
    return factories


def stale_attempt(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The end of any attempt counts as the end of the present one."""
    right = JobLifecycle.on_attempt_ended

    def finished(self: JobLifecycle, record: JobRecord, index: int, end: AttemptEnd) -> bool:
        return right(self, record, index, msgspec.structs.replace(end, attempt=record.attempt[index]))

    patch.setattr(JobLifecycle, "on_attempt_ended", finished)
    return factories


def gives_up(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """After five denials a broker neither claims for a task nor registers demand for it again."""
    right = JobLifecycle.on_attempt_refused
    denials: dict[tuple[str, TaskId], int] = {}

    def refused(self: JobLifecycle, task: TaskId, attempt: int, reason: str) -> None:
        record = self.context.jobs.get(job_of(task))
        key = (self.context.config.name, task)
        denials[key] = denials.get(key, 0) + 1
        index = index_of(task)
        if record is not None and denials[key] > DENIALS_MAX and record.state[index] in (CLAIMED, PLACED):
            record.state[index] = WAITING  # but in no line
            record.place[index] = -1
            return
        right(self, task, attempt, reason)

    patch.setattr(JobLifecycle, "on_attempt_refused", refused)
    return with_unchecked_history(factories)


def news_overwrites_pending(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """News of a node makes the broker forget its own claims on the way there.

    The warden checks every claim, so the bug cannot over-commit a node: it makes the broker claim the same
    room twice, be refused, and believe in more room than there is once the answers come. What breaks is that
    the view is no longer a function of what is recorded: a broker that comes back from its journal computes
    what is usable anew, and goes on otherwise than it did. So replay is where the league sees it.
    """
    right = ClusterView.apply_delta

    def delta(self: ClusterView, news: Delta) -> bool:
        taken = right(self, news)
        if taken and self.state.snapshot is not None and news.version == self.state.version:
            for node, free in zip(news.nodes, news.free, strict=True):
                self.usable.set_free(node, free)
        return taken

    patch.setattr(ClusterView, "apply_delta", delta)
    return factories


def late_refusal(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A refusal counts whatever has become of the task since."""
    right = JobLifecycle.on_attempt_refused

    def refused(self: JobLifecycle, task: TaskId, attempt: int, reason: str) -> None:
        record = self.context.jobs.get(job_of(task))
        index = index_of(task)
        if record is not None and CLAIMED <= record.state[index] <= RUNNING:
            record.state[index] = PLACED
            attempt = record.attempt[index]
        right(self, task, attempt, reason)

    patch.setattr(JobLifecycle, "on_attempt_refused", refused)
    return with_unchecked_history(factories)


def never_closed(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A broker keeps every estate that it ever adopted."""
    patch.setattr(ShardTeardown, "_ask_to_close", lambda *_: None)
    return factories


def not_fenced(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A warden forgets a closed estate altogether."""
    patch.setattr(Ownership, "_fence", lambda *_: None)
    return factories


def adopter_forgotten(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """Who has lost a job to an adopter does not remember to whom."""
    give = OwnedShardsState.record_transfer

    def forget(state: OwnedShardsState, jobs: Sequence[JobId], adopter: str, most: int) -> None:
        give(state, jobs, adopter, most)
        state.new_owners.clear()

    patch.setattr(OwnedShardsState, "record_transfer", forget)
    return factories


def points_back(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A door takes whoever it last heard of for the owner, also one that was asked before; and a broker that
    has adopted jobs remembers no ends."""

    def find(
        job: JobId, _: object, desk: BrokerContext, __: object, state: OwnedShardsState, wards: StandbyShards
    ) -> str:
        if job in desk.jobs:
            return desk.config.name
        first = desk.config.brokers[broker_number(job) - 1]
        return state.new_owners.get(job) or wards.find_owner(job) or first

    patch.setattr(broker_module, "find_answering_broker", find)
    return factories


def watchdog_hangs_too(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A watchdog that shares a disk with the output of its tasks: it ends them when that moves on."""
    watch, move_on = SimulatedBackend._check_watchdog, SimulatedBackend.resume_output
    missed: dict[SimulatedBackend, int] = {}

    def hung(self: SimulatedBackend, look_at: int) -> None:
        if self.is_output_hanging:
            missed[self] = look_at
        else:
            watch(self, look_at)

    def late(self: SimulatedBackend, _: object = None) -> None:
        move_on(self)
        if self in missed:
            watch(self, missed.pop(self))

    patch.setattr(SimulatedBackend, "_check_watchdog", hung)
    patch.setattr(SimulatedBackend, "resume_output", late)
    return factories


def old_orders(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """An order to start is carried out however long it was held up."""
    patch.setattr(SimulatedBackend, "_launch_delayed", lambda self, command: self.launch(command))
    return factories


def past_not_compared(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A member that comes back with an older past is not told so."""
    patch.setattr(LinkHistory, "find_contradiction", lambda *_: None)
    return factories


def received_not_compared(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A member that has forgotten what it took, but nothing that it said, is not told so."""
    right = LinkHistory.find_contradiction

    def contradiction(self: LinkHistory, peer: str, taken: int, _: int, session: int = 0) -> str | None:
        return right(self, peer, taken, 0, session)

    patch.setattr(LinkHistory, "find_contradiction", contradiction)
    return factories


def newcomers_at_once(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A cluster that has joined is used by brokers that know it, whoever else does."""
    patch.setattr(Membership, "least_version", lambda _: 1 << 30)
    return factories


def mail_for_the_retired(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """What was said to somebody who has retired is repeated for ever."""
    right = LinkSet.__init__

    def init(
        self: LinkSet, name: str, timings: Timings, _: tuple[str, ...] = (),
        on_firm_ack: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        right(self, name, timings, (), on_firm_ack)

    patch.setattr(LinkSet, "__init__", init)
    return factories


def claims_at_the_retired(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A claim on its way to a cluster that retires is waited for."""
    patch.setattr(ClusterView, "abandon_claims", lambda _: None)
    return factories


def retires_with_jobs(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A broker retires though nobody else has its jobs, or knows what it has done."""
    patch.setattr(ShardTeardown, "count_unreplicated", lambda _: 0)
    return factories


def lost_start_again(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A broker does not look whether a lost task may start again."""
    patch.setattr(job_lifecycle, "must_not_repeat", lambda _: False)
    return factories


def taken_back_start_again(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """What is taken back, because its start was not told in time, counts as not begun."""
    right = JobLifecycle.on_attempt_ended

    def finished(self: JobLifecycle, record: JobRecord, index: int, end: AttemptEnd) -> bool:
        if end.outcome is Outcome.CANCELLED and index in record.withdrawn:
            end = msgspec.structs.replace(end, outcome=Outcome.UNSTARTED)
        return right(self, record, index, end)

    patch.setattr(JobLifecycle, "on_attempt_ended", finished)
    patch.setattr(withdrawal, "must_not_repeat", lambda _: False)
    return factories


def unblocked_untold(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The history does not say that a group need not wait any longer."""
    patch.setattr(JobHistory, "unblock_group", lambda *_: None)
    return factories


def refusals_untold(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The history does not say that a warden has refused attempts."""
    right = JobHistory.end_attempt

    def end(self: JobHistory, task: TaskId, state: int, end: AttemptEnd | None) -> None:
        if end is not None:
            right(self, task, state, end)

    patch.setattr(JobHistory, "end_attempt", end)
    return factories


def resumed_untold(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The history of an adopter does not say what wardens have of the jobs."""
    patch.setattr(JobHistory, "resume_tasks", lambda *_: None)
    return factories


def old_starts_told(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The history tells every start that is reported, also of attempts that are over for the broker."""
    right = JobHistory.start_tasks
    patch.setattr(JobHistory, "start_tasks", lambda self, entries, _: right(self, entries, []))
    return factories


def drops_untold(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The history does not say that copies are outdated."""
    patch.setattr(JobHistory, "drop_copies", lambda *_: None)
    return factories


def with_unchecked_history(factories: LeagueFactories) -> LeagueFactories:
    """Brokers whose history nobody looks at: for bugs that it would show before what they are to show."""

    def broker(config: BrokerConfig, policies: PolicyNames) -> Broker:
        return Broker(config, *make_policies(policies.order, policies.placer, policies.rank, policies.sizer))

    return factories._replace(broker=broker)


class Planted(NamedTuple):
    """A bug, the promises that it may break, and seeds that are known to show it."""

    plant: Planter
    promises: tuple[str, ...]
    seeds: tuple[int, ...]


DOORS = "brokers route to the owner"
ONE_ATTEMPT = "at most one live attempt"
ONE_END = "at most one effective completion"
OVER = "settled means over"
TERMINAL = "every acknowledged task terminal"
REPLAY = "ledger equals journal replay"
LEAKS = "no lease leaks"
ONE_NUMBER = "one job, one number"
OWN_RULES = "machines keep their own rules"
LEFT_OPEN = "no shard is left open"
OWN_PAST = "a member's own history is accepted"
ANSWERED = "every submission answered"
ONCE = "no second start after a loss"

PLANTED = {
    "ack before journal": Planted(
        ack_before_journal, (TERMINAL, ONE_ATTEMPT, ONE_END, OVER, LEAKS, ONE_NUMBER, OWN_PAST), (3, 5, 7)
    ),
    "double release": Planted(double_release, ("no over-commit",), (1, 3)),
    "no de-duplication of claims": Planted(no_deduplication, (ONE_ATTEMPT, OVER), (11, 0, 4)),
    "lease counted from receipt": Planted(lease_from_receipt, (ONE_ATTEMPT, OVER), (89, 2, 5)),
    "stale attempt accepted": Planted(stale_attempt, (ONE_ATTEMPT, ONE_END, OVER), (16, 6, 11)),
    "gives up after five denials": Planted(gives_up, (TERMINAL,), (19, 25, 53)),
    "news overwrites pending claims": Planted(news_overwrites_pending, (REPLAY, OWN_RULES), (10, 11, 13)),
    "late refusal overrides a live grant": Planted(late_refusal, (ONE_ATTEMPT, ONE_END, OVER), (16, 56)),
    "adopted estates are never closed": Planted(never_closed, (LEFT_OPEN,), (5, 8, 14)),
    "the watchdog hangs with the output": Planted(watchdog_hangs_too, (ONE_ATTEMPT, OVER), (2, 11, 322)),
    "old orders are carried out": Planted(old_orders, (ONE_ATTEMPT, OVER), (37, 76, 186)),
    "closed estates are not fenced": Planted(not_fenced, (LEFT_OPEN, ONE_ATTEMPT, OVER), (53, 140, 169)),
    "the adopter is forgotten": Planted(adopter_forgotten, (DOORS,), (5, 7, 8)),
    "doors point back": Planted(points_back, (DOORS,), (5, 7, 8)),
    "an older past is not noticed": Planted(
        past_not_compared, (TERMINAL, LEAKS, ONE_NUMBER, ONE_ATTEMPT, OVER), (4, 6, 9)
    ),
    "what was taken is not compared": Planted(received_not_compared, (TERMINAL, LEAKS), (20, 22, 29)),
    "newcomers are used at once": Planted(newcomers_at_once, (ONE_ATTEMPT, OVER, ONE_END), (118,)),
    "mail for the retired is kept": Planted(mail_for_the_retired, (LEAKS,), (16, 23, 47)),
    "claims at the retired are waited for": Planted(claims_at_the_retired, (LEAKS, TERMINAL), (158, 277)),
    "a broker retires with its jobs": Planted(
        retires_with_jobs, (TERMINAL, LEAKS, ANSWERED), (220, 259, 419)
    ),
    "lost tasks start again": Planted(lost_start_again, (ONCE,), (1, 2, 4)),
    "what was taken back starts again": Planted(taken_back_start_again, (ONCE,), (35, 134, 209)),
    "groups that are queued are not told": Planted(unblocked_untold, (HISTORY,), (0, 2, 3)),
    "refusals are not told": Planted(refusals_untold, (HISTORY,), (1, 2, 3)),
    "what wardens have is not told": Planted(resumed_untold, (HISTORY,), (5, 7, 8)),
    "starts of the past are told": Planted(old_starts_told, (HISTORY,), (27, 29, 49)),
    "outdated copies are not told": Planted(drops_untold, (HISTORY,), (0, 5, 6)),
}


def in_order(known: tuple[int, ...]) -> Iterator[int]:
    """The known seeds, then the rest of the CI run's."""
    assert all(seed in CI_SEEDS for seed in known)
    yield from known
    yield from (seed for seed in CI_SEEDS if seed not in known)


def run_with(bug: Planted, seed: int) -> SeedResult:
    """A seed's result with the bug in place."""
    with pytest.MonkeyPatch.context() as patch:
        return run_seed(seed, bug.plant(patch, shipped_factories()))


@pytest.mark.parametrize("name", PLANTED)
def test_the_seeds_of_the_ci_run_expose_it(name: str) -> None:
    bug = PLANTED[name]
    for seed in in_order(bug.seeds):
        finding = run_with(bug, seed).finding
        broken = finding is not None and finding.promise in bug.promises
        if broken and run_seed(seed, shipped_factories()).finding is None:
            return
    pytest.fail(f"no seed of {CI_SEEDS} exposes: {name}")
