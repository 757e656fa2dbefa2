"""Answers of canned brokers that several tests use, and a client that asks for them."""

from typing import Any

from hanse.client.client import LeagueClient
from hanse.client.endpoints import Endpoints
from tests.client.canned import Answer, Asked, CannedLeague, not_found

LEAGUE = {"league": "tested", "broker": "broker-1", "clusters": [{"name": "north", "reachable": True}]}


def client_of(league: CannedLeague) -> LeagueClient:
    return LeagueClient(Endpoints("tested", league.context()))


def league_answer(asked: Asked) -> Answer:
    return Answer(200, LEAGUE) if asked.path == "/v1/league" else not_found(asked)


def busy(_: Asked) -> Answer:
    return Answer(503, {"error": {"code": "busy", "message": "behind with its work", "hint": "try again"}})


def listing(*rows: dict[str, Any]) -> Any:
    def reply(asked: Asked) -> Answer:
        state = asked.query.get("state", "")
        chosen = [one for one in rows if state in ("", one["state"])]
        at = next((i + 1 for i, one in enumerate(chosen) if one["cursor"] == asked.query.get("after")), 0)
        page = chosen[at : at + int(asked.query["limit"])]
        more = at + len(page) < len(chosen)
        return Answer(200, {"jobs": page, "next": page[-1]["cursor"] if more else None})

    return reply
