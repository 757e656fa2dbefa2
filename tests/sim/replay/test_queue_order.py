"""A replay's queue orders are those of the registry: ours and those of other packages."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from hanse.cli.commands.replay import replay
from hanse.model.messages import QueueKey
from hanse.policy.interface import JobFacts
from hanse.registry import QUEUE_ORDERS
from hanse.sim.replay import compiled
from hanse.sim.replay.queue_order import facts_at_arrival, queue_order_of
from hanse.sim.replay.registry import policies, select_policies
from hanse.sim.replay.run_records import ReplayError, ReplaySettings, ReplayWorkload
from hanse.sim.replay.trace_workload import workload_from_chunk
from hanse.sim.traces import load

SECOND = 1_000_000
WORKLOAD = ReplayWorkload(
    "made", [0, 1, 2, 3], [0, 1, 2, 3, 4], [SECOND] * 4, [SECOND] * 4, [0] * 4, [0, 2, 1, -1]
)
SETTINGS = ReplaySettings(nodes=1, clusters=1, brokers=1, order="by-user", delay_us=0)


class ByUser:
    """Users in the order of their names."""

    name = "by-user"
    follows_progress = False
    follows_usage = False

    def key(self, facts: JobFacts) -> QueueKey:
        return (int.from_bytes(facts.tenant.encode("ascii").ljust(7)[:7], "big"), facts.accepted_at)


class ByUserAndRest(ByUser):
    """The same, and a key that changes."""

    name = "by-rest"
    follows_progress = True

    def key(self, facts: JobFacts) -> QueueKey:
        return (facts.remaining, *super().key(facts))


@pytest.fixture(autouse=True)
def orders() -> Iterator[None]:
    removers = [QUEUE_ORDERS.register(kind.name, kind) for kind in (ByUser, ByUserAndRest)]
    yield
    for remove in removers:
        remove()


def served(policy: str, settings: ReplaySettings = SETTINGS) -> list[int]:
    """The jobs in the order in which they ran."""
    chosen = select_policies([policy], settings)[0]
    return [int(job) for job in np.argsort(chosen(WORKLOAD, settings).start, kind="stable")]


@pytest.mark.parametrize("policy", ["hanse", "central", "ideal", "independent", "shared", "megha-repaired"])
def test_an_order_of_another_package_runs_under_every_policy_with_a_choice(policy: str) -> None:
    assert served(policy) == [0, 3, 2, 1]


def test_an_order_of_another_package_runs_on_the_machines() -> None:
    machines = msgspec.structs.replace(SETTINGS, engine="machines")
    assert served("hanse", machines) == [0, 3, 2, 1]
    for engine in ("machines", "auto"):
        settings = msgspec.structs.replace(SETTINGS, engine=engine)
        assert policies()["hanse"](WORKLOAD, settings).engine == "machines"


def test_the_compiled_league_refuses_it_in_a_sentence() -> None:
    if compiled.load_problem():
        pytest.skip(compiled.load_problem())
    with pytest.raises(ReplayError, match=r"the order by-user belongs to another package.*--engine machines"):
        served("hanse", msgspec.structs.replace(SETTINGS, engine="compiled"))


def test_an_order_that_follows_progress_runs_under_hanse_alone() -> None:
    settings = msgspec.structs.replace(SETTINGS, order="by-rest")
    assert served("hanse", settings) == [0, 3, 2, 1]
    for policy in ("central", "ideal", "independent", "shared", "megha-repaired"):
        with pytest.raises(ReplayError, match=r"keys of the order by-rest change.*use --policy hanse"):
            served(policy, settings)
    assert served("sparrow", settings) == [0, 1, 2, 3]  # it has an order of its own


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    problem = msgspec.structs.replace(SETTINGS, order="by-colour").find_problem()
    assert "there is no queue order 'by-colour'; choose one of: fifo, fewest-remaining" in problem
    done = CliRunner().invoke(replay, ["t.csv", "--nodes", "4", "--order", "by-colour"])
    assert done.exit_code == 2
    assert "by-user" in done.output
    assert "by-user" in CliRunner().invoke(replay, ["--help"]).output


@pytest.mark.parametrize("name", QUEUE_ORDERS.shipped)
def test_every_order_of_ours_is_one_of_a_replay(name: str) -> None:
    settings = msgspec.structs.replace(SETTINGS, order=name, short_cutoff_us=SECOND // 2)
    order = queue_order_of(WORKLOAD, settings)
    assert order.name == name
    assert len(order.key(facts_at_arrival(WORKLOAD, 0))) >= 1
    assert settings.find_problem() == ""


def test_the_users_of_a_trace_are_tenants(tmp_path: Path) -> None:
    trace = tmp_path / "log.swf"
    rows = [
        f"{job} {job} 0 10 1 -1 -1 1 10 -1 1 {user} 1 1 1 -1 -1 -1" for job, user in ((1, 7), (2, 9), (3, 7))
    ]
    trace.write_text("; UnixStartTime: 0\n" + "\n".join(rows) + "\n")
    workload = workload_from_chunk(load(trace), "log")
    tenants = [workload.tenant_of(job) for job in range(3)]
    assert tenants[0] == tenants[2] != tenants[1]
    assert tenants[0].startswith("user-")
    assert msgspec.structs.replace(workload, user=[]).tenant_of(1) == "default"
