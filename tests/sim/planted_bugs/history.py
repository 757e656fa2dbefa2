"""Bugs in what a broker says of its jobs and tasks, and brokers to whose words nobody listens."""

import pytest

from hanse.core.broker.broker import Broker
from hanse.core.broker.history_emitter import JobHistory
from hanse.core.config import BrokerConfig
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd
from hanse.registry import make_policies
from hanse.sim.league import LeagueFactories, PolicyNames


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
    """The history of a new owner does not say what wardens have of the jobs."""
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
    """Brokers whose history nobody checks: for bugs that it would show before what they are to show."""

    def broker(config: BrokerConfig, policies: PolicyNames) -> Broker:
        return Broker(config, *make_policies(policies.order, policies.placer, policies.rank, policies.sizer))

    return factories._replace(broker=broker)
