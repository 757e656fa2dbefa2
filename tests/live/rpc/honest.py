"""Machines that have every message vetted before they take it, as the wire does: honest mail must pass."""

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, RunnerConfig, WardenConfig
from hanse.core.runner.runner import Runner
from hanse.core.warden.warden import Warden
from hanse.live.rpc.frames import decode_frame
from hanse.live.rpc.peer_permissions import ALLOWED_MESSAGES
from hanse.live.rpc.validation import validate_frame
from hanse.live.rpc.validation_context import (
    ValidationContext,
    broker_validation_context,
    runner_validation_context,
    warden_validation_context,
)
from hanse.model.effects import Effect
from hanse.model.events import Event, MessageReceived
from hanse.model.messages import Envelope
from hanse.policy.interface import ClusterRanker, NodeRanker, Placer, QueueOrder, Sizer
from hanse.registry import NODE_RANKERS, make_policies
from hanse.security.identity import Role
from hanse.sim.league import LeagueFactories, PolicyNames
from tests.live.rpc.nonsense import as_frame_of, tasks_of

REFUSED: list[str] = []
"""What was refused, and why; tests empty it."""
VETTED: list[int] = [0]


def examine(event: Event, limits: ValidationContext, role: Role) -> None:
    """Send a received envelope through the whole receiving path; note what would have been refused."""
    if type(event) is not MessageReceived:
        return
    VETTED[0] += 1
    limits.clock = lambda: event.at
    content = as_frame_of(event.envelope)[4:]
    envelopes = decode_frame(content)
    if isinstance(envelopes, str):
        REFUSED.append(f"{envelopes}: {event.envelope}")
        return
    assert envelopes == [event.envelope]
    allowed = ALLOWED_MESSAGES.get((_role(event.envelope, limits), role), frozenset())
    if type(event.envelope.body) not in allowed:
        REFUSED.append(f"body: {event.envelope}")
    good, stale, reason = validate_frame(envelopes, lambda _: limits)
    if stale or reason or not good:
        REFUSED.append(f"{reason or 'stale'}: {event.envelope}")


def _role(envelope: Envelope, limits: ValidationContext) -> Role:
    groups = {Role.BROKER: limits.brokers, Role.WARDEN: limits.clusters, Role.RUNNER: limits.runners}
    return next(role for role, names in groups.items() if envelope.source in (names or ()))


class VettedBroker(Broker):
    """A broker behind the checks."""

    def __init__(
        self, config: BrokerConfig, order: QueueOrder, placer: Placer, rank: ClusterRanker, sizer: Sizer
    ) -> None:
        super().__init__(config, order, placer, rank, sizer)
        self.limits = broker_validation_context(config)
        self.limits.count_tasks = lambda job: tasks_of(self, job)

    def handle(self, event: Event) -> list[Effect]:
        examine(event, self.limits, Role.BROKER)
        return super().handle(event)


class VettedWarden(Warden):
    """A warden behind the checks."""

    def __init__(self, config: WardenConfig, node_ranker: NodeRanker) -> None:
        super().__init__(config, node_ranker)
        self.limits = warden_validation_context(config)

    def handle(self, event: Event) -> list[Effect]:
        examine(event, self.limits, Role.WARDEN)
        return super().handle(event)


class VettedRunner(Runner):
    """A runner behind the checks."""

    def __init__(self, config: RunnerConfig) -> None:
        super().__init__(config)
        self.limits = runner_validation_context(config)

    def handle(self, event: Event) -> list[Effect]:
        examine(event, self.limits, Role.RUNNER)
        return super().handle(event)


def make_broker(config: BrokerConfig, policies: PolicyNames) -> Broker:
    return VettedBroker(
        config,
        *make_policies(policies.order, policies.placer, policies.rank, policies.sizer),
    )


def make_warden(config: WardenConfig, policies: PolicyNames) -> Warden:
    return VettedWarden(config, NODE_RANKERS.get(policies.node_ranker)())


def vetted_factories() -> LeagueFactories:
    return LeagueFactories(broker=make_broker, warden=make_warden, runner=VettedRunner)
