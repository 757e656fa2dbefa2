"""What monitoring sees of the league file and of members that may not act."""

import asyncio
from pathlib import Path
from typing import cast

from hanse.api.league_file_records import FileStanding
from hanse.league.config import LeagueConfig
from hanse.league.file import parse
from hanse.live.membership import fenced_members
from hanse.live.membership.league_file_sync import LeagueFileHost, LeagueFileSync
from hanse.live.telemetry.member_metrics import MemberMetrics, ObservedDaemon
from hanse.live.telemetry.prometheus_text import render
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from tests.live.telemetry.scraped import samples_of, total

TEXT = """
league: hansa
version: 3
brokers: [{name: b1}, {name: b2}]
clusters: [{name: north, nodes: [{cpus: 1}]}, {name: south, nodes: [{cpus: 1}], retired: true}]
"""


class Member:
    """What a membership asks of its daemon."""

    def __init__(self, home: Path) -> None:
        (home / "league.yaml").write_text(TEXT, encoding="utf-8")
        self.home = home
        self.league: LeagueConfig = parse(TEXT.encode(), "the file")
        self.identity = Identity("hansa", Role.BROKER, "b1")
        self.credentials = Credentials(home / "b1")
        self.counted: list[str] = []

    def count(self, what: str) -> None:
        self.counted.append(what)

    def start_again(self, why: str) -> None:
        raise AssertionError(why)


def test_members_with_another_file_and_fenced_ones_are_shown(tmp_path: Path) -> None:
    async def story() -> None:
        own = LeagueFileSync(cast(LeagueFileHost, Member(tmp_path)), lambda _: "")
        watch = MemberMetrics(cast(ObservedDaemon, None))
        watch.league_file_state = own.monitoring_summary
        assert own.monitoring_summary() == (3, [], [])
        own.record_standing("b2", FileStanding(3, own.standing.digest))
        own.record_standing("north", FileStanding(3, "another"))
        for name in ("b2", "north", "south"):
            own.fenced_members.add(name, f"{name} lost records")
        assert own.monitoring_summary() == (3, ["north"], ["b2", "north"]), (
            "who has retired may be as it likes"
        )
        assert own.summary()["fenced"] == {"b2": "b2 lost records", "north": "north lost records"}
        found = samples_of(render(watch._membership_families()))
        assert total(found, "hanse_league_file_version") == 3
        assert total(found, "hanse_league_file_differs", member="north") == 1
        assert total(found, "hanse_member_fenced") == 2
        own.record_standing("north", FileStanding(3, own.standing.digest))
        assert own.monitoring_summary() == (3, [], ["b2"]), "who takes part is not fenced"

    asyncio.run(story())


def test_a_fence_is_forgotten_unless_it_is_told_again(tmp_path: Path) -> None:
    async def story() -> list[str]:
        fences = fenced_members.FencedMembers()
        fences.add("north")
        before, fenced_members.FENCE_SECONDS = fenced_members.FENCE_SECONDS, 0.0  # type: ignore[misc]
        try:
            return list(fences.reasons(Member(tmp_path).league))
        finally:
            fenced_members.FENCE_SECONDS = before  # type: ignore[misc]

    assert asyncio.run(story()) == []
