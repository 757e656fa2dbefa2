"""Keys of jobs follow what their tenants use, for the orders that ask for it."""

from collections import Counter

import msgspec
import pytest

from hanse.core.broker.broker import Broker
from hanse.core.broker.queue_keys import QueueKeys, held_resources
from hanse.core.config import BrokerConfig
from hanse.model.ids import SECOND, JobId, job_of
from hanse.model.job import JobSpec
from hanse.model.messages import QueueKey
from hanse.model.resources import Resources
from hanse.policy.interface import JobFacts
from hanse.registry import make_policies
from hanse.sim.chaos import run_seed
from hanse.sim.league import PolicyNames
from hanse.sim.shipped_league import shipped_factories
from tests.core.wired import Wired, job, node, tasks


class LeastUsed:
    """The tenant that uses least goes first, then arrival."""

    name = "least-used"
    follows_progress = False
    follows_usage = True

    def key(self, facts: JobFacts) -> QueueKey:
        return (facts.tenant_usage, facts.accepted_at)


def broker_of(config: BrokerConfig, policies: PolicyNames | None = None) -> Broker:
    chosen = policies or PolicyNames("fifo", "best-fit", "rotate", "least")
    _, placer, rank, sizer = make_policies(chosen.order, chosen.placer, chosen.rank, chosen.sizer)
    return Broker(config, LeastUsed(), placer, rank, sizer)


def league_of(*names: str, **options: object) -> Wired:
    """A league whose brokers follow usage."""
    league = Wired({"c1": (node(4_000),)}, names, boot=False, **options)  # type: ignore[arg-type]
    for name in names:
        machine = league.machines[name]
        assert isinstance(machine, Broker)
        league.makers[name] = lambda config=machine.config: broker_of(config)  # type: ignore[misc]
        league.machines[name] = league.makers[name]()
    for name in league.machines:
        league.boot(name)
    league.run(3 * SECOND)
    return league


def of_tenant(tenant: str, count: int) -> JobSpec:
    return msgspec.structs.replace(job(tasks(count)), tenant=tenant)


def keys_of(league: Wired, name: str = "b1") -> QueueKeys:
    machine = league.machines[name]
    assert isinstance(machine, Broker)
    machine.check()
    return machine._placement.keys


def running(league: Wired, jobs: dict[JobId, str]) -> Counter[str]:
    return Counter(jobs[job_of(task)] for task, _ in league.live)


def end_one(league: Wired, jobs: dict[JobId, str], tenant: str) -> None:
    task, attempt = next(key for key in league.live if jobs[job_of(key[0])] == tenant)
    league.exit(task, attempt)
    league.run(SECOND)


@pytest.mark.parametrize("restarts", [False, True])
def test_room_goes_to_the_tenant_that_uses_less(restarts: bool) -> None:
    league = league_of("b1")
    jobs = {league.submit(of_tenant("a", 8)): "a", league.submit(of_tenant("b", 8)): "b"}
    assert running(league, jobs) == {"a": 4}
    for expected in ({"a": 3, "b": 1}, {"a": 2, "b": 2}):
        if restarts:
            league.restart("b1")
            league.run(3 * SECOND)
        end_one(league, jobs, "a")
        assert running(league, jobs) == expected
        assert keys_of(league)._shares == {name: 250 * count for name, count in expected.items()}
    end_one(league, jobs, "b")
    assert running(league, jobs) == {"a": 2, "b": 2}


def test_what_ends_is_not_counted_any_more() -> None:
    league = league_of("b1")
    number = league.submit(of_tenant("a", 2))
    assert keys_of(league)._used == {"a": Resources(2_000)}
    league.end(number)
    league.run(SECOND)
    keys = keys_of(league)
    assert (keys._used, keys._shares, keys._held) == ({}, {}, {})


def test_a_job_that_another_broker_owns_is_counted_there() -> None:
    league = league_of("b1", "b2")
    jobs = {league.submit(of_tenant("a", 3)): "a"}
    assert keys_of(league)._shares == {"a": 750}
    league.deaf["b1"] = True
    league.run(120 * SECOND)
    assert running(league, jobs) == {"a": 3}
    assert keys_of(league, "b2")._shares == {"a": 750}
    league.deaf.clear()
    league.run(60 * SECOND)
    assert keys_of(league, "b1")._shares == {}


def test_an_order_that_does_not_follow_usage_pays_nothing() -> None:
    league = Wired({"c1": (node(4_000),)}, ("b1",))
    league.submit(of_tenant("a", 2))
    keys = keys_of(league)
    assert not keys.follows_usage
    assert keys._held == {}
    machine = league.machines["b1"]
    assert isinstance(machine, Broker)
    (record,) = machine._context.jobs.values()
    assert held_resources(record) == Resources(2_000)
    assert (record.facts().tenant, record.facts().tenant_usage) == ("a", 0)


@pytest.mark.parametrize("seed", range(8))
def test_no_promise_breaks_and_every_replay_is_the_same(seed: int) -> None:
    """The simulator compares each broker with one that is made from its snapshot and its journal."""
    assert run_seed(seed, shipped_factories()._replace(broker=broker_of)).finding is None


@pytest.mark.parametrize("ends", [1, 2, 3])
def test_every_key_is_current_after_ends_in_one_message(ends: int) -> None:
    league = Wired({"c1": (node(4_000),)}, ("b1",), order="fewest-remaining")
    for count in (8, 6):
        league.submit(job(tasks(count)))
    for task, attempt in list(league.live)[:ends]:
        league.exit(task, attempt)
    league.run(SECOND)
    machine = league.machines["b1"]
    assert isinstance(machine, Broker)
    machine.check()
    records = list(machine._context.jobs.values())
    assert sorted(record.tasks_left for record in records) == sorted((8 - ends, 6))
    assert [record.keys for record in records] == [
        [machine._context.order.key(one.facts())] for one in records
    ]
