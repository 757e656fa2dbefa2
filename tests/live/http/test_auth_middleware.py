"""The gate by itself: limits, bounds, bugs of ours."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import Response

from hanse.live.http import auth_middleware
from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.application import ApiApplication
from hanse.live.http.auth_middleware import LONG_REQUESTS_MAX, REQUESTS_MAX, AuthMiddleware
from hanse.live.http.operation_record import Operation
from hanse.live.http.rate_limiter import BURST
from hanse.live.http.responses import json_answer
from hanse.security.access_tokens import AccessTokenVerifier
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Identity, Role
from hanse.security.revocation_list import REVOKED_FILE, RevocationSet

QUICK = Operation(name="quick", verb="GET", path="/quick", doc="", roles=(Role.VIEWER,))
LASTING = Operation(
    name="lasting", verb="GET", path="/lasting", doc="", roles=(Role.VIEWER,), long_lived=True
)
FOR_BOTH = Operation(
    name="both", verb="GET", path="/both", doc="", roles=(Role.VIEWER, Role.BROKER), long_lived=True
)
CLOSED = Operation(name="closed", verb="GET", path="/closed", doc="")
OPEN = Operation(name="open", verb="GET", path="/open", doc="", public=True)


class Asked:
    """An application, asked without a network."""

    def __init__(self, path: Path, handler: Handler, clock: Callable[[], float]) -> None:
        authority = Authority.create(path / "authority", "local")
        self.counts: dict[str, int] = {}
        self.book = AccessTokenVerifier("local", authority.certificate, path / REVOKED_FILE)
        self.gate = AuthMiddleware("local", self.book, self._count)
        for buckets in (self.gate.identity_limiter, self.gate.anonymous_limiter):
            buckets._clock = clock
        table = (QUICK, LASTING, FOR_BOTH, CLOSED, OPEN)
        self.aborted: list[str] = []
        """Whose connections were ended."""
        self.application = ApiApplication(
            self.gate, [*self.gate.routes(table, dict.fromkeys(table, handler))]
        )

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def get(
        self,
        path: str,
        name: str = "ann",
        role: Role = Role.VIEWER,
        host: str = "192.0.2.1",
        issued: int = 0,
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of one request of somebody with a certificate; no name: without one."""
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        peer = Identity("local", role, name) if name else None
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [], "client": (host, 1), "server": ("door", 443), "scheme": "https", "root_path": "",
            "http_version": "1.1",
            "state": {"peer": peer, "issued": issued, "abort": lambda: self.aborted.append(f"{role}/{name}")},
        }  # fmt: skip
        await self.application(scope, receive, send)
        headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], headers, msgspec.json.decode(body) if body else None


async def fine(_: AdmittedRequest) -> Response:
    return json_answer({"ok": True})


def behind(gates: asyncio.Event) -> Handler:
    """A handler that answers when the gates are open."""

    async def slow(_: AdmittedRequest) -> Response:
        await gates.wait()
        return json_answer({"ok": True})

    return slow


def never() -> float:
    """A clock that stands still: buckets do not fill."""
    return 0.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_middleware, "REFUSAL_DELAY_SECONDS", 0.0)


def test_a_flood_of_one_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        most = int(BURST)
        statuses = [(await asked.get("/quick", "eve"))[0] for _ in range(most + 2_000)]
        assert statuses == [200] * most + [429] * 2_000
        status, headers, body = await asked.get("/quick", "eve")
        assert (status, headers["retry-after"], body["error"]["code"]) == (429, "1", "too_often")
        assert [(await asked.get("/quick", "ann"))[0] for _ in range(1_000)] == [200] * 1_000
        assert asked.counts == {"refused_too_often": 2_001}

    asyncio.run(play())


def test_strangers_pay_by_their_address_and_do_not_touch_identities(tmp_path: Path) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        tries = [(await asked.get("/quick", ""))[0] for _ in range(300)]
        assert tries == [401] * 200 + [429] * 100
        assert (await asked.get("/open", ""))[0] == 429
        assert (await asked.get("/open", "", host="192.0.2.2"))[0] == 200
        assert (await asked.get("/quick", "ann"))[0] == 200
        network = [(await asked.get("/quick", "", host=f"2001:db8::{n:x}"))[0] for n in range(1, 302)]
        assert network.count(401) == 200, "one host may have all addresses of its network"

    asyncio.run(play())


def test_only_so_much_of_one_identity_is_under_way(tmp_path: Path) -> None:
    async def play() -> None:
        gates = asyncio.Event()
        asked = Asked(tmp_path, behind(gates), never)
        quick = [asyncio.create_task(asked.get("/quick", "eve")) for _ in range(REQUESTS_MAX)]
        lasting = [asyncio.create_task(asked.get("/lasting", "eve")) for _ in range(LONG_REQUESTS_MAX)]
        await asyncio.sleep(0)
        for path in ("/quick", "/lasting"):
            async with asyncio.timeout(10):
                status, headers, body = await asked.get(path, "eve")
            assert (status, body["error"]["code"], headers["retry-after"]) == (429, "too_many", "1")
        other = asyncio.create_task(asked.get("/quick", "ann"))
        gates.set()
        assert (await other)[0] == 200
        assert [one[0] for one in await asyncio.gather(*quick, *lasting)] == [200] * len([*quick, *lasting])
        assert (await asked.get("/quick", "eve"))[0] == 200
        assert asked.gate._in_progress == {}

    asyncio.run(play())


def test_refusals_are_held_only_so_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        asked.gate.identity_limiter.charge("viewer/eve", 10_000)
        held = [
            asyncio.create_task(asked.get("/quick", "eve"))
            for _ in range(auth_middleware.DELAYED_REFUSALS_MAX)
        ]
        await asyncio.sleep(0)
        assert (await asked.get("/quick", "eve"))[0] == 429
        assert not any(task.done() for task in held)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert asked.gate._delayed == 0

    monkeypatch.setattr(auth_middleware, "REFUSAL_DELAY_SECONDS", 3_600.0)
    asyncio.run(play())


def test_a_bug_of_ours_is_told_in_the_shape_of_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: AdmittedRequest) -> Response:
        raise ZeroDivisionError("secret detail")

    async def play() -> None:
        asked = Asked(tmp_path, broken, never)
        status, _, body = await asked.get("/quick")
        assert (status, body["error"]["code"]) == (500, "bug")
        assert "secret" not in body["error"]["message"]
        assert asked.counts == {"failed_requests": 1}

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "secret detail" in caplog.text


def test_what_has_no_roles_is_for_nobody(tmp_path: Path) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        assert [(await asked.get("/closed", "x", role))[0] for role in Role] == [403] * len(Role)
        assert (await asked.get("/closed", ""))[0] == 401

    asyncio.run(play())


def test_a_table_and_its_handlers_must_agree(tmp_path: Path) -> None:
    asked = Asked(tmp_path, fine, never)
    with pytest.raises(AssertionError):
        asked.gate.routes((QUICK, OPEN), {QUICK: fine})
    with pytest.raises(AssertionError):
        asked.gate.routes((QUICK,), {QUICK: fine, OPEN: fine})


# --- people who were revoked ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["told", "home"])
def test_a_revoked_certificate_is_refused_from_one_request_to_the_next(tmp_path: Path, where: str) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        assert (await asked.get("/both", issued=1_000))[0] == 200
        ended = RevocationSet(names={"ann": 1_000})
        if where == "told":
            asked.book.peer_revocations = ended
        else:
            (tmp_path / REVOKED_FILE).write_bytes(msgspec.json.encode(ended))
        status, headers, body = await asked.get("/both", issued=1_000)
        assert (status, body["error"]["code"]) == (401, "certificate_revoked")
        assert "hanse join" in body["error"]["hint"]
        assert "viewer ann" in body["error"]["message"]
        assert "www-authenticate" in headers
        assert (await asked.get("/both", issued=1_001))[0] == 200, "a later one is good"
        assert (await asked.get("/both", "bob", issued=1_000))[0] == 200
        assert (await asked.get("/both", "ann", Role.BROKER, issued=1_000))[0] == 200, "members go on"
        assert asked.counts == {"refused_certificate_revoked": 1}

    asyncio.run(play())


def test_whoever_was_revoked_pays_as_a_stranger(tmp_path: Path) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        asked.book.peer_revocations = RevocationSet(names={"ann": 1_000})
        tries = [(await asked.get("/quick", issued=1))[0] for _ in range(300)]
        assert tries == [401] * 200 + [429] * 100
        assert (await asked.get("/quick", issued=1_001))[0] == 200, "a new certificate has its own share"

    asyncio.run(play())


@pytest.mark.parametrize("damage", ["told", "home"])
def test_a_list_that_cannot_be_read_refuses_people_and_no_member(tmp_path: Path, damage: str) -> None:
    async def play() -> None:
        asked = Asked(tmp_path, fine, never)
        if damage == "told":
            asked.book.peer_revocations = None
        else:
            (tmp_path / REVOKED_FILE).write_bytes(b"{")
        status, headers, body = await asked.get("/both", issued=1_000)
        assert (status, body["error"]["code"]) == (503, "no_revocations")
        assert headers["retry-after"]
        assert (await asked.get("/both", "b1", Role.BROKER))[0] == 200
        assert (await asked.get("/open", ""))[0] == 200

    asyncio.run(play())


def test_what_lasts_of_somebody_who_was_revoked_is_ended(tmp_path: Path) -> None:
    async def play() -> None:
        gates = asyncio.Event()
        asked = Asked(tmp_path, behind(gates), never)
        people = [("ann", Role.VIEWER), ("bob", Role.VIEWER), ("ann", Role.BROKER)]
        lasting = [asyncio.create_task(asked.get("/both", name, role)) for name, role in people]
        await asyncio.sleep(0)
        asked.gate.abort_revoked()
        assert asked.aborted == []
        asked.book.peer_revocations = RevocationSet(names={"ann": 1_000})
        asked.gate.abort_revoked()
        assert asked.aborted == ["viewer/ann"]
        assert asked.counts == {"ended_certificate_revoked": 1}
        gates.set()
        await asyncio.gather(*lasting)
        assert asked.gate._long_calls == {}

    asyncio.run(play())
