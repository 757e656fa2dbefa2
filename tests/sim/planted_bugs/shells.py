"""Bugs in the shells, the backend and the clocks of leases."""

import pytest

from hanse.core.runner.runner import Runner
from hanse.model.effects import Effect
from hanse.model.events import Event
from hanse.sim.backend import SimulatedBackend
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.league import LeagueFactories


class AckFirst(JournalledProcess):
    """Performs an event's commands before the journal has the event."""

    def _delay_effects(self, commands: list[Effect]) -> None:
        self.perform(commands)
        super()._delay_effects([])

    def _crash_at(self, event: Event) -> None:
        assert self._planned_crash is not None
        where, downtime = self._planned_crash
        if where:
            super()._crash_at(event)
            return
        self.world.call_at(self.world.now + downtime, self.restart)
        self.perform(self.machine.handle(event))
        self.crash(self.rng.randint(0, len(self.uncommitted)))
        self._expected_state = None  # the shell believes that the journal has everything


def ack_before_journal(_: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A crash may take back what the world has already seen."""
    return factories._replace(process=AckFirst)


def lease_from_receipt(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A runner counts its lease from when the renewal arrived, not from when it asked."""
    handle, renewed = Runner.handle, Runner._renew_lease
    clock: dict[str, int] = {}

    def stamped(self: Runner, event: Event) -> list[Effect]:
        clock[self.name] = event.at
        return handle(self, event)

    def late(self: Runner, now: int, echo: int) -> None:
        renewed(self, now, max(echo, clock[self.name]))

    patch.setattr(Runner, "handle", stamped)
    patch.setattr(Runner, "_renew_lease", late)
    return factories


def watchdog_hangs_too(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A watchdog that shares a disk with the output of its tasks: it ends them when that moves on."""
    watch, move_on = SimulatedBackend._check_watchdog, SimulatedBackend.resume_output
    missed: dict[SimulatedBackend, int] = {}

    def hung(self: SimulatedBackend, look_at: int) -> None:
        if self.is_output_hanging:
            missed[self] = look_at
        else:
            watch(self, look_at)

    def late(self: SimulatedBackend, _: object = None) -> None:
        move_on(self)
        if self in missed:
            watch(self, missed.pop(self))

    patch.setattr(SimulatedBackend, "_check_watchdog", hung)
    patch.setattr(SimulatedBackend, "resume_output", late)
    return factories


def old_orders(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """An order to start is carried out however long it was held up."""
    patch.setattr(SimulatedBackend, "_launch_delayed", lambda self, command: self.launch(command))
    return factories
