"""Turns of brokers to restart with a new league file."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from hanse.league.config import LeagueConfig
from hanse.league.file import parse
from hanse.live.membership.league_file_sync import ANSWER_SECONDS, LeagueFileHost, LeagueFileSync
from hanse.live.membership.restart_turns import BROKER_SECONDS_APART, LATE_SECONDS_MAX, TURNS_MAX
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role

TEXT = """
league: hansa
version: {version}
brokers: [{{name: b1}}, {{name: b2}}]
clusters: [{{name: north, nodes: [{{cpus: {version}}}]}}]
"""
ROUND_SECONDS = 2 * BROKER_SECONDS_APART


class SkippingLoop(asyncio.SelectorEventLoop):
    """Event loop in which no time passes but the time that is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def skip(timeout: float | None) -> object:
            assert timeout is not None, "nothing is waited for"
            self._now += max(timeout, 0.0)
            return select(0)

        self._selector.select = skip  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


class Broker:
    """Daemon of a broker that has not restarted with version 2 yet, as far as ``LeagueFileSync`` needs it."""

    def __init__(self, home: Path, name: str) -> None:
        home.mkdir(parents=True)
        (home / "league.yaml").write_text(TEXT.format(version=2), encoding="utf-8")
        self.home = home
        self.league: LeagueConfig = parse(TEXT.format(version=1).encode(), "the file")
        self.identity = Identity("hansa", Role.BROKER, name)
        self.credentials = Credentials(home / name)
        self.restarted_at = -1.0

    def count(self, what: str) -> None:
        """Count nothing."""

    def start_again(self, why: str) -> None:
        assert "version 2" in why
        self.restarted_at = asyncio.get_running_loop().time()


async def restart_times(folder: Path, held_by: str, *holds: tuple[float, float]) -> dict[str, float]:
    """Return the times of the restarts, if one broker answers requests in these intervals."""
    brokers = {name: Broker(folder / name, name) for name in ("b1", "b2")}
    syncs = {name: LeagueFileSync(cast(LeagueFileHost, host), lambda _: "") for name, host in brokers.items()}
    start = asyncio.get_running_loop().time()

    async def hold(begin: float, end: float) -> None:
        await asyncio.sleep(begin)
        async with syncs[held_by].change_lock:
            assert not syncs[held_by].is_restarting
            await asyncio.sleep(start + end - asyncio.get_running_loop().time())

    await asyncio.gather(
        *(hold(*each) for each in holds), *(sync._start_again_when_due() for sync in syncs.values())
    )
    return {name: host.restarted_at - start for name, host in brokers.items()}


def run(folder: Path, held_by: str, *holds: tuple[float, float]) -> dict[str, float]:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(restart_times(folder, held_by, *holds))


def test_brokers_restart_one_after_the_other(tmp_path: Path) -> None:
    at = run(tmp_path, "b1")
    assert at["b2"] - at["b1"] == pytest.approx(BROKER_SECONDS_APART)


@pytest.mark.parametrize("held_by", ["b1", "b2"])
@pytest.mark.parametrize("until", [0.5, 1.5, 3.5, 4.0, 4.5, 6.9, 7.0, 7.1, 10.0, 13.5, 20.0])
def test_a_broker_that_missed_its_turn_waits_for_the_next(tmp_path: Path, held_by: str, until: float) -> None:
    at = run(tmp_path, held_by, (0.0, until))
    distance = abs(at["b1"] - at["b2"]) % ROUND_SECONDS
    nearest = BROKER_SECONDS_APART - LATE_SECONDS_MAX
    assert nearest - 0.001 <= distance <= ROUND_SECONDS - nearest + 0.001
    assert at[held_by] <= until + ROUND_SECONDS + ANSWER_SECONDS + 0.001


def test_requests_in_all_of_its_turns_do_not_keep_a_broker_from_its_restart(tmp_path: Path) -> None:
    turns = [1.0 + ROUND_SECONDS * number for number in range(TURNS_MAX)]
    at = run(tmp_path, "b1", *((turn - 0.5, turn + 2.0) for turn in turns))
    assert at["b1"] == pytest.approx(turns[-1] + 2.0 + ANSWER_SECONDS)
