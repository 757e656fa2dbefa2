"""League with the shipped machines and policies, for the simulator."""

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig
from hanse.core.runner.runner import Runner
from hanse.core.warden.warden import Warden
from hanse.registry import make_policies
from hanse.sim.league import LeagueFactories, PolicyNames


def shipped_factories() -> LeagueFactories:
    """Return factories for brokers with the named policies, wardens and runners."""
    return LeagueFactories(broker=make_broker, warden=Warden, runner=Runner)


def make_broker(config: BrokerConfig, policies: PolicyNames) -> Broker:
    """Return a broker with the policies of these names."""
    return Broker(config, *make_policies(policies.order, policies.placer, policies.rank, policies.sizer))
