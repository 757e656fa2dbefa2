"""The chaos runs themselves: no broken promises, every rare branch reached, and findings that explain
themselves."""

import os

import pytest

from hanse.core.config import RunnerConfig
from hanse.core.coverage_marks import ALL_MARKS
from hanse.core.machine import Machine
from hanse.core.runner.runner import Runner
from hanse.model.effects import Effect, LaunchAttempt
from hanse.model.events import Event, TasksChanged
from hanse.sim.chaos import (
    REPEAT_EVERY,
    check_seed,
    check_seeds,
    combined_digest,
    describe_options,
    explain_seed,
    run_seed,
)
from hanse.sim.shipped_league import shipped_factories

CI_SEEDS = range(500)
"""The range that ``hanse chaos --seeds 500`` runs."""
SEEDS_WITH_BATCHES = range(8)


class Doubling(Runner):
    """A runner that launches every attempt twice."""

    def handle(self, event: Event) -> list[Effect]:
        commands = super().handle(event)
        return commands + [command for command in commands if isinstance(command, LaunchAttempt)]


class Raising(Runner):
    """A runner with a bug of its own."""

    def handle(self, event: Event) -> list[Effect]:
        commands = super().handle(event)
        assert not any(isinstance(command, LaunchAttempt) for command in commands), "cannot launch"
        return commands


def test_every_rare_branch_is_reached_and_no_promise_broken() -> None:
    missing = dict.fromkeys(ALL_MARKS)
    for result in check_seeds(CI_SEEDS, shipped_factories(), os.cpu_count() or 1):
        assert result.finding is None, f"seed {result.seed}: {result.finding}"
        for mark in result.marks:
            missing.pop(mark, None)
        if not missing:
            return
    raise AssertionError(f"no seed reaches {list(missing)}")


@pytest.mark.parametrize("seed", [569, 3_872])
def test_what_a_broker_says_does_not_depend_on_what_it_has_looked_up(seed: int) -> None:
    """Beyond the range of every day: here a broker that came back had forgotten where looking for room was
    futile, looked, and told a waiting group something else."""
    assert run_seed(seed, shipped_factories()).finding is None


def test_runners_hear_of_many_starts_and_ends_at_once() -> None:
    """Also of both of the same attempt, as in a live league."""
    changes: list[TasksChanged] = []

    class Noting(Runner):
        """A runner that notes what it hears of its tasks."""

        def handle(self, event: Event) -> list[Effect]:
            if isinstance(event, TasksChanged):
                changes.append(event)
            return super().handle(event)

    for seed in SEEDS_WITH_BATCHES:
        assert run_seed(seed, shipped_factories()._replace(runner=Noting)).finding is None
    sizes = [(len(change.started), len(change.ended)) for change in changes]
    assert any(starts > 1 for starts, _ in sizes)
    assert any(ends > 1 for _, ends in sizes)
    assert (1, 0) in sizes
    assert (0, 1) in sizes
    whole = [end for change in changes for end in change.ended if (end.task, end.attempt) in change.started]
    assert whole


def test_a_finding_names_the_promise_and_the_task() -> None:
    factories = shipped_factories()._replace(runner=Doubling)
    result, lines = explain_seed(1, factories)
    assert result.finding is not None
    assert result.finding.promise == "at most one live attempt"
    assert "another one runs" in result.finding.message
    assert result.finding.task
    assert lines[0].startswith("The story of task")
    assert any("=> launch" in line for line in lines)
    assert any("** attempt 1 runs" in line for line in lines)


def test_a_machine_that_raises_is_a_finding_with_its_trace() -> None:
    finding = run_seed(1, shipped_factories()._replace(runner=Raising)).finding
    assert finding is not None
    assert finding.promise == "machines keep their own rules"
    assert "cannot launch" in finding.trace


def test_a_seed_that_is_not_repeatable_is_a_finding() -> None:
    made: list[int] = []

    def moody(config: RunnerConfig) -> Machine:
        made.append(1)
        return Runner(config) if len(made) < 4 else Doubling(config)

    result = check_seed(REPEAT_EVERY, shipped_factories()._replace(runner=moody))
    assert result.finding is not None


def test_many_seeds_come_in_order_and_have_one_digest() -> None:
    alone = list(check_seeds(range(4), shipped_factories(), 1))
    together = list(check_seeds(range(4), shipped_factories(), 2))
    assert [result.seed for result in together] == [0, 1, 2, 3]
    assert combined_digest(alone) == combined_digest(together[::-1])
    assert combined_digest(alone) != combined_digest(alone[:3])


def test_a_story_can_be_told_of_any_task() -> None:
    result, lines = explain_seed(3, shipped_factories())
    assert result.finding is None
    assert len(lines) > 10
    _, nothing = explain_seed(3, shipped_factories(), task=1 << 60)
    assert "has no record of task" in nothing[0]


def test_all_options_of_a_seed_are_printable() -> None:
    text = "\n".join(describe_options(3))
    for word in (
        "scenario",
        "cluster c1",
        "durability",
        "timings",
        "network",
        "rates",
        "workload",
        "policies",
    ):
        assert word in text
