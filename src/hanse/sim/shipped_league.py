"""League with the shipped machines and policies, for the simulator."""

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, WardenConfig
from hanse.core.runner.runner import Runner
from hanse.core.warden.warden import Warden
from hanse.registry import NODE_RANKERS, make_policies
from hanse.sim.job_history_check import CheckedBroker
from hanse.sim.league import LeagueFactories, PolicyNames


def shipped_factories() -> LeagueFactories:
    """Return factories for brokers and wardens with the named policies, and for runners."""
    return LeagueFactories(broker=make_broker, warden=make_warden, runner=Runner)


def make_broker(config: BrokerConfig, policies: PolicyNames) -> Broker:
    """Return a broker with the policies of these names, whose history is checked."""
    return CheckedBroker(
        config, *make_policies(policies.order, policies.placer, policies.rank, policies.sizer)
    )


def make_warden(config: WardenConfig, policies: PolicyNames) -> Warden:
    """Return a warden with the policy of this name."""
    return Warden(config, NODE_RANKERS.get(policies.node_ranker)())
