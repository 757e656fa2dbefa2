"""Bugs in joining and retiring."""

from collections.abc import Callable

import pytest

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.failover.shard_teardown import ShardTeardown
from hanse.core.broker.gossip import BrokerGossip
from hanse.core.config import Timings
from hanse.core.messaging.link import LinkSet
from hanse.sim.league import LeagueFactories


def newcomers_at_once(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A cluster that has joined is used by brokers that know it, whoever else does."""
    patch.setattr(BrokerGossip, "least_version", lambda _: 1 << 30)
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
