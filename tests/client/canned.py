"""Doors with prepared answers: real TLS servers with a league's certificates, for tests of the client."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from hanse.client.contexts import Context, save_context
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from hanse.security.private_keys import certificate_request, new_key

LEAGUE = "tested"


class Asked(NamedTuple):
    """A request as a door got it."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class Answer(NamedTuple):
    """What a door says to it."""

    status: int = 200
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


HANG_UP = Answer(-1)
"""Read the request, then close the connection without an answer."""
CUT = "X-Cut"
"""A header that makes a door promise one byte more than it sends, and then hang up."""
Reply = Callable[[Asked], Answer]


class CannedDoor:
    """One member's door. ``reply`` may be exchanged at any time."""

    def __init__(self, credentials: Credentials, reply: Reply) -> None:
        self.reply = reply
        self.asked: list[Asked] = []
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                asked = Asked(self.command, parts.path, dict(parse_qsl(parts.query)), body)
                door.asked.append(asked)
                answer = door.reply(asked)
                if answer is HANG_UP:
                    self.close_connection = True
                    return
                raw = isinstance(answer.body, bytes)
                data = answer.body if raw else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                cut = any(name == CUT for name, _ in answer.headers)
                self.send_header("Content-Length", str(len(data) + cut))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = self.close_connection or cut

            do_GET = do_POST = handle_any  # noqa: N815  as the base class wants it

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as the base class names it
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that breaks the handshake off is part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        context = credentials.server_context(require=False)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._server.socket.settimeout(5)  # a client that is gone again must not stop the loop in accept
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class CannedLeague:
    """Brokers and clusters with prepared answers, their certificates, and a context that leads to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "authority", LEAGUE)
        self.doors: dict[str, CannedDoor] = {}
        self.brokers: dict[str, str] = {}
        self.clusters: dict[str, str] = {}
        self.person = self.credentials(Role.ADMIN, "admin")

    def credentials(self, role: Role, name: str) -> Credentials:
        """Somebody's certificate."""
        found = Credentials(self.folder / str(role) / name)
        key = new_key()
        certificate = self.authority.issue(
            Identity(LEAGUE, role, name), certificate_request(key), ["127.0.0.1"]
        )
        assert isinstance(certificate, str)
        found.store(key, certificate, self.authority.certificate)
        return found

    def add(self, role: Role, name: str, reply: Reply, shows: str = "") -> CannedDoor:
        """Open a door; ``shows``: the name in its certificate, if it is not its own."""
        door = CannedDoor(self.credentials(role, shows or name), reply)
        self.doors[name] = door
        (self.brokers if role is Role.BROKER else self.clusters)[name] = door.address
        self.save()
        return door

    def broker(self, name: str, reply: Reply, shows: str = "") -> CannedDoor:
        """Open a broker's door."""
        return self.add(Role.BROKER, name, reply, shows)

    def cluster(self, name: str, reply: Reply) -> CannedDoor:
        """Open the door of a cluster's warden."""
        return self.add(Role.WARDEN, name, reply)

    def dead_broker(self, name: str) -> None:
        """A broker that nobody finds at its address."""
        door = self.broker(name, lambda _: Answer())
        door.close()
        del self.doors[name]

    def context(self) -> Context:
        """How to get at it."""
        return Context(LEAGUE, "", str(self.person.directory), dict(self.brokers), dict(self.clusters))

    def save(self) -> None:
        """Write it down as the current context."""
        save_context("tested", self.context(), make_current=True)

    def close(self) -> None:
        """Close every door."""
        for door in self.doors.values():
            door.close()


@contextmanager
def canned_league(folder: Path) -> Iterator[CannedLeague]:
    """A league for one test; ``$HANSE_CONFIG`` must lead somewhere of the test's own."""
    league = CannedLeague(folder)
    try:
        yield league
    finally:
        league.close()


def row(
    job: str = "1-7", state: str = "succeeded", owner: str = "broker-1", **changed: Any
) -> dict[str, Any]:
    """A job's row as a door writes it."""
    ended = state in ("succeeded", "failed", "cancelled")
    return {
        "id": job, "name": "build", "tenant": "default", "state": state, "total": 1,
        "waiting": int(state == "queued"), "running": int(state == "running"),
        "succeeded": int(state == "succeeded"), "failed": int(state == "failed"),
        "cancelled": int(state == "cancelled"), "submitted": 1_000_000, "started": 2_000_000,
        "ended": 3_000_000 if ended else None, "priority": 0, "klass": "batch",
        "clusters": ["north"], "cancel_reason": "", "owner": owner, "client_id": "", "cursor": f"0.{job}",
        **changed,
    }  # fmt: skip


def task(index: int = 0, state: str = "succeeded", **changed: Any) -> dict[str, Any]:
    """A task's row as a door writes it."""
    return {
        "index": index, "group": "main", "state": state, "attempt": 1, "cluster": "north", "node": 0,
        "outcome": state, "code": 0, "usage": [1_000, 4_096, 2_000], "note": "", "failures": 0,
        "started": 2_000_000, "ended": 3_000_000, **changed,
    }  # fmt: skip


def not_found(_: Asked) -> Answer:
    """Whatever is asked for is not here."""
    return Answer(404, {"error": {"code": "not_found", "message": "there is no such job here", "hint": ""}})


AMOUNTS = {"cpu": 8_000, "memory": 16 << 30, "gpu": 2, "custom": {"fpga": 1}}


def cluster_answer(asked: Asked) -> Answer:
    """As the door of a cluster with two nodes; the ninth does not exist."""
    return cluster_with(
        asked,
        {"node": 0, "attributes": {"zone": "a"}, "up": True, "draining": True},
        {"node": 1, "attributes": {}, "up": False, "draining": False},
    )


def cluster_with(asked: Asked, *nodes: dict[str, Any]) -> Answer:
    """As the door of a cluster with these nodes."""
    body = asked.body or {}
    if asked.path == "/v1/drain" and 9 in body.get("nodes", ()):
        return Answer(422, {"error": {"code": "bad_request", "message": "no", "hint": ""}})
    told = {
        "cluster": "north",
        "nodes": nodes,
        "running": 3,
        "backend": "process",
        "warnings": ["no cgroups"],
    }
    return Answer(200, told if asked.path == "/v1/cluster" else {"cluster": "north", **body})
