"""Facts of a machine in the live shell: they reach readers, and nothing else depends on them."""

import asyncio
from pathlib import Path

import pytest

from hanse.live import shell as shell_module
from hanse.live.clock import Clock
from hanse.live.journal.journal import Journal
from hanse.live.shell import JournalledShell
from hanse.model.effects import Effect
from hanse.model.events import CancelRequested, Event, Tick
from hanse.model.history_effects import JobDropped
from hanse.model.ids import JobId
from tests.live.test_shell import Echo


class Historian(Echo):
    """The same, and it states a fact about a job with everything."""

    def handle(self, event: Event) -> list[Effect]:
        return [JobDropped(JobId(7)), *super().handle(event)]


def test_facts_are_for_readers_and_hasten_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digests of effects leave them out, so that journals of before they existed compare as they did."""
    monkeypatch.setattr(shell_module, "LAZY_SECONDS", 3_600.0)

    async def story(machine: Echo, directory: Path) -> str:
        told: list[Effect] = []
        journal, _ = Journal.open(directory / "journal")
        digests, clock = directory / "commands.digest", Clock()
        shell = JournalledShell(
            machine, clock, lambda _: None, journal, lambda _: None, lambda *one: told.extend(one[2]), digests
        )
        shell.handle(Tick(clock.now()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert journal.durable == 0
        shell.handle(CancelRequested(clock.now(), "me", 3, JobId(4)))
        asked = journal.position
        await shell.wait_durable()
        shell.close()
        assert (JobDropped(JobId(7)) in told) == isinstance(machine, Historian)
        return dict(line.split() for line in digests.read_text().splitlines())[str(asked)]

    found = []
    for machine in (Echo(), Historian()):
        directory = tmp_path / type(machine).__name__
        directory.mkdir()
        found.append(asyncio.run(asyncio.wait_for(story(machine, directory), 30)))
    assert found[0] == found[1]
