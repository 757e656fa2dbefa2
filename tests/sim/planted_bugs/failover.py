"""Bugs in takeovers, and in what peers remember of a member that comes back with an older past."""

from collections.abc import Sequence

import pytest

from hanse.core.broker import broker as broker_module
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.owned_shards import OwnedShardsState
from hanse.core.broker.failover.shard_teardown import ShardTeardown
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.history_check import LinkHistory
from hanse.core.warden.ownership import Ownership
from hanse.model.ids import JobId, broker_number
from hanse.sim.league import LeagueFactories


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
