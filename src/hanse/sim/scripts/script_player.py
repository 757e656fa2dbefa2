"""Player of a golden script: performs one command after another on a league under manual control."""

from collections.abc import Callable
from random import Random
from shlex import split
from typing import Any, Final

import msgspec

from hanse.core.config import NodeConfig, Timings, WardenConfig
from hanse.model.constraints import Value
from hanse.model.effects import (
    Effect,
    JobAccepted,
    LaunchAttempt,
    RequestRejected,
    TaskSettled,
    TasksSettled,
    for_each_task,
)
from hanse.model.ids import MILLISECOND, SECOND, broker_number, parse_task
from hanse.model.messages import Envelope, Outcome
from hanse.model.resources import Resources
from hanse.sim.backend import NEVER_ENDS, PlannedEnd
from hanse.sim.checkers.oracle import Oracle
from hanse.sim.event_text import record_text, resources_text
from hanse.sim.league import LeagueDesign, LeagueFactories, PolicyNames, SimulatedLeague
from hanse.sim.network import SimulatedLink
from hanse.sim.scripts.manual_network import ManualNetwork
from hanse.sim.scripts.script_log import ScriptLog, message_name
from hanse.sim.scripts.words import (
    ScriptError,
    parse_duration,
    parse_job_of,
    parse_job_spec,
    parse_resources,
    parse_value,
)
from hanse.sim.workload import GroupBehaviour, JobPlan, SeedWorkload
from hanse.sim.world import Violation, VirtualWorld

WARM_UP: Final = 3 * SECOND
"""Time for the members to exchange first messages before the story begins."""
IDLE_MAX: Final = 300 * SECOND
"""Longest time that ``run until idle`` waits."""


class ScriptWorkload(SeedWorkload):
    """Jobs that the script submits; a task without a run time runs until the script ends it."""

    def __init__(self) -> None:
        super().__init__(0, [])

    def planned_end(self, launch: LaunchAttempt) -> PlannedEnd:
        """Return the planned end of this attempt."""
        plan, group = self.plan_of(launch.payload)
        duration = plan.groups[group].duration
        return (duration, Outcome.SUCCEEDED, 0) if duration else NEVER_ENDS


class ScriptPlayer:
    """Player of a golden script: a league under manual control."""

    def __init__(self, factories: LeagueFactories) -> None:
        self._factories = factories
        self._log = ScriptLog()
        self._world = VirtualWorld(self._log)
        self._network = ManualNetwork(self._world, manual=True)
        self._wardens: list[WardenConfig] = []
        self._workload = ScriptWorkload()
        self._oracle: Oracle | None = None
        self._league: SimulatedLeague | None = None
        self._requests = 0
        verbs: dict[str, Callable[[list[str], dict[str, str]], None]] = {
            "cluster": self._cluster, "league": self._start_league, "submit": self._submit,
            "cancel": self._cancel,
            "deliver": self._deliver, "drop": self._drop, "flight": self._print_in_flight,
            "network": self._set_network_mode,
            "advance": self._advance, "run": self._run, "finish": self._finish, "fail": self._fail,
            "crash": self._crash, "restart": self._restart, "pause": self._pause, "resume": self._resume,
            "burn": self._lose_host, "cut": self._cut, "heal": self._heal, "drain": self._drain,
            "undrain": self._undrain, "state": self._print_state,
        }  # fmt: skip
        self._verbs = verbs

    def perform(self, line: str) -> list[str]:
        """Perform one command; return its output."""
        verb, *rest = split(line)
        if verb not in self._verbs:
            return [f"ERROR no such command: {line!r}; known commands: {', '.join(sorted(self._verbs))}"]
        plain = [word for word in rest if "=" not in word or "->" in word]
        named = dict(word.split("=", 1) for word in rest if "=" in word and "->" not in word)
        try:
            self._verbs[verb](plain, named)
            if verb not in ("cluster", "deliver", "drop", "flight", "state", "network"):
                self._world.run(self._world.now)
        except Violation as violation:
            self._log.lines.append(f"VIOLATION {violation}")
        except ScriptError as error:
            self._log.lines.append(f"ERROR {error}")
        lines, self._log.lines = self._log.lines, []
        return lines

    # --- set-up --------------------------------------------------------------------------------------------

    def _cluster(self, plain: list[str], named: dict[str, str]) -> None:
        name, *kinds = plain
        runners = int(named.pop("runners", "1"))
        reserve = int(named.pop("reserve", "0"))
        capacities = [
            capacity
            for kind in kinds
            for count, _, size in [kind.partition("x")]
            for capacity in [parse_resources(size)] * int(count)
        ]
        attributes = {key: values.split(",") for key, values in named.items()}
        nodes = []
        for index, capacity in enumerate(capacities):
            here: list[tuple[str, Value]] = [
                (key, parse_value(values[index % len(values)])) for key, values in sorted(attributes.items())
            ]
            nodes.append(
                NodeConfig(capacity, tuple(here), f"{name}.r{index % runners + 1}", f"{name}-{index}")
            )
        self._wardens.append(WardenConfig(name, tuple(nodes), (), Timings(), reserve))

    def _start_league(self, plain: list[str], named: dict[str, str]) -> None:
        manual = named.pop("network", "manual") == "manual"
        names = {field: named.pop(field) for field in PolicyNames.__struct_fields__ if field in named}
        timings = Timings(**{key: parse_duration(value) for key, value in named.items()})
        brokers = tuple(plain)
        wardens = tuple(
            msgspec.structs.replace(warden, brokers=brokers, timings=timings) for warden in self._wardens
        )
        design = LeagueDesign(brokers, wardens, timings, policies=PolicyNames(**names))
        self._league = SimulatedLeague(self._world, self._network, self._factories, design, Random(1))
        self._oracle = Oracle(self._world, self._workload, wardens, design.lost_max)
        self._league.add_backends(self._workload.planned_end, self._oracle)
        for broker in self._league.brokers.values():
            broker.set_performers({
                TaskSettled: self._oracle.on_task_settled,
                TasksSettled: for_each_task(self._oracle.on_task_settled),
                JobAccepted: self._on_job_accepted, RequestRejected: _ignore,
            })  # fmt: skip
        for backend in self._league.backends.values():
            backend.notice_max = 0
        self._network.manual = False
        self._league.start()
        self._world.run(self._world.now + WARM_UP)
        self._set_network_mode(["manual" if manual else "immediate"], {})
        self._log.lines.clear()

    def _on_job_accepted(self, effect: JobAccepted) -> None:
        assert self._oracle is not None
        plan = self._workload.plans[effect.request // 2]
        if not effect.request % 2:
            self._oracle.on_job_accepted(effect.job, plan)

    # --- work ----------------------------------------------------------------------------------------------

    def _submit(self, plain: list[str], named: dict[str, str]) -> None:
        number = len(self._workload.plans)
        run = parse_duration(named.pop("run", "0s"))
        spec = parse_job_spec(number, named)
        truths = tuple(GroupBehaviour(run, 0) for _ in spec.groups)
        self._workload.plans.append(JobPlan(number, self._world.now, plain[0], spec, truths))
        self._league_and_oracle()[1].specs[number] = spec
        self._process(plain[0]).submit(("user", 2 * number, spec))

    def _cancel(self, plain: list[str], named: dict[str, str]) -> None:
        job = parse_job_of(plain[0])
        league, oracle = self._league_and_oracle()
        broker = named.get("at") or league.design.brokers[broker_number(job) - 1]
        oracle.cancelled_jobs[job] = None
        plan = oracle.jobs.get(job)
        request = 2 * plan.number + 1 if plan else 1
        self._process(broker).cancel(("user", request, job))

    def _finish(self, plain: list[str], _: dict[str, str]) -> None:
        for task in plain:
            self._end(task, Outcome.SUCCEEDED, 0)

    def _fail(self, plain: list[str], named: dict[str, str]) -> None:
        for task in plain:
            self._end(task, Outcome.FAILED, int(named.get("code", "1")))

    def _end(self, text: str, outcome: Outcome, code: int) -> None:
        task = parse_task(text)
        league, _ = self._league_and_oracle()
        if task is None or not any(it.finish(task, outcome, code) for it in league.backends.values()):
            raise ScriptError(f"task {text} is not running")
        self._world.run(self._world.now + 10 * MILLISECOND)

    # --- time and messages ---------------------------------------------------------------------------------

    def _advance(self, plain: list[str], _: dict[str, str]) -> None:
        self._world.run(self._world.now + parse_duration(plain[0]))

    def _run(self, _: list[str], __: dict[str, str]) -> None:
        oracle = self._league_and_oracle()[1]
        latest = self._world.now + IDLE_MAX
        while self._world.now < latest and (
            oracle.open_tasks or oracle.live_tasks or self._network.in_flight
        ):
            self._deliver(["all"], {})
            self._world.run(self._world.now + 10 * MILLISECOND)

    def _deliver(self, plain: list[str], _: dict[str, str]) -> None:
        """Deliver the messages in flight once; ``all``: repeat until none is left."""
        again = plain[:1] == ["all"]
        words_left = plain[1:] if again else plain
        while True:
            chosen = self._take_in_flight(words_left)
            for link, envelope in chosen:
                link.receive(envelope)
            self._world.run(self._world.now)
            if not again or not chosen:
                return

    def _drop(self, plain: list[str], _: dict[str, str]) -> None:
        for _link, envelope in self._take_in_flight(plain):
            self._log.on_message_lost(self._world.now, envelope, "dropped")

    def _take_in_flight(self, plain: list[str]) -> list[tuple[SimulatedLink, Envelope]]:
        """Remove and return the messages in flight that match a pattern: ``[source->target] [kind]``."""
        source, arrow, target = plain[0].partition("->") if plain else ("", "", "")
        kind = "" if not plain or (arrow and len(plain) == 1) else " ".join(plain[1:] if arrow else plain)
        chosen: list[tuple[SimulatedLink, Envelope]] = []
        left: list[tuple[SimulatedLink, Envelope]] = []
        for link, envelope in self._network.in_flight:
            fits = (not arrow or (link.source, link.target) == (source, target)) and kind in (
                "",
                message_name(envelope),
            )
            (chosen if fits else left).append((link, envelope))
        self._network.in_flight = left
        return chosen

    def _print_in_flight(self, _: list[str], __: dict[str, str]) -> None:
        for link, envelope in self._network.in_flight:
            self._log.lines.append(f"{link.source} -> {link.target}: {record_text(envelope.body)}")

    def _set_network_mode(self, plain: list[str], _: dict[str, str]) -> None:
        self._network.manual = plain == ["manual"]
        self._log.brief = not self._network.manual

    # --- faults --------------------------------------------------------------------------------------------

    def _crash(self, plain: list[str], _: dict[str, str]) -> None:
        self._process(plain[0]).crash()

    def _restart(self, plain: list[str], _: dict[str, str]) -> None:
        self._process(plain[0]).restart()

    def _pause(self, plain: list[str], _: dict[str, str]) -> None:
        self._process(plain[0]).pause()

    def _resume(self, plain: list[str], _: dict[str, str]) -> None:
        self._process(plain[0]).resume()

    def _lose_host(self, plain: list[str], _: dict[str, str]) -> None:
        self._league_and_oracle()[0].backends[plain[0]].lose_host()

    def _cut(self, plain: list[str], _: dict[str, str]) -> None:
        left, bar, right = plain[0].partition("|")
        if not bar:
            left, bar, right = plain[0].partition("->")
        for link in self._network.links:
            there = link.source in left.split(",") and link.target in right.split(",")
            back = link.source in right.split(",") and link.target in left.split(",")
            link.cuts += there or (bar == "|" and back)

    def _heal(self, _: list[str], __: dict[str, str]) -> None:
        for link in self._network.links:
            link.cuts = 0

    def _drain(self, plain: list[str], _: dict[str, str]) -> None:
        self._process(plain[0]).drain((tuple(map(int, plain[1:])), True, 0))

    def _undrain(self, plain: list[str], _: dict[str, str]) -> None:
        self._process(plain[0]).drain((tuple(map(int, plain[1:])), False, 0))

    # --- inspection ----------------------------------------------------------------------------------------

    def _print_state(self, plain: list[str], _: dict[str, str]) -> None:
        league = self._league_and_oracle()[0]
        machine: Any = self._process(plain[0]).machine
        add_line = self._log.lines.append
        if plain[0] in league.wardens:
            for index, free in enumerate(machine.advertised_free()):
                add_line(f"node {index} offers {resources_text(Resources(*free[:3]))}")
        elif plain[0] in league.brokers:
            for cluster in league.wardens:
                view = machine.believed_free(cluster)
                seen = (
                    "unknown"
                    if view is None
                    else ", ".join(resources_text(Resources(*free[:3])) for free in view)
                )
                add_line(f"believes {cluster}: {seen}")
        for complaint in machine.find_leftovers():
            add_line(f"not idle: {complaint}")

    def _league_and_oracle(self) -> tuple[SimulatedLeague, Oracle]:
        if self._league is None or self._oracle is None:
            raise ScriptError("there is no league yet; write 'league b1 ...' first")
        return self._league, self._oracle

    def _process(self, name: str) -> Any:
        process = self._league_and_oracle()[0].find_process(name)
        if process is None:
            raise ScriptError(f"there is no process {name!r}")
        return process


def _ignore(_: Effect) -> None:
    """Do nothing: the log shows the effect."""
