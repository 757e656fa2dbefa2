"""Every refusal has one shape, whoever it comes from: the table, the gate, the parser or nobody at all."""

import socket
import ssl
from typing import Any

import msgspec
import pytest

from hanse.api.records import ErrorAnswer
from hanse.league.config import Address
from hanse.live.http.responses import BODY_BYTES_MAX
from hanse.security.identity import Role
from tests.live.harness import LiveLeague
from tests.live.http.conftest import Said, ask, bearer, nobody

ODD = [
    ("GET", "/", 404, "no_such_path"),
    ("GET", "/v1/jobs/", 404, "no_such_path"),
    ("GET", "/v1/jobs/1%2F7", 404, "no_such_path"),
    ("GET", "/v1/j%C3%B6bs%00", 404, "no_such_path"),
    ("DELETE", "/v1/jobs", 405, "bad_method"),
    ("PATCH", "/healthz", 405, "bad_method"),
    ("GET", "/v1/jobs/x", 422, "bad_parameter"),
    ("GET", "/v1/jobs/1-07", 422, "bad_parameter"),
    ("GET", "/v1/jobs/9999-0", 404, "not_found"),
    ("GET", "/v1/jobs/1-9999999999", 404, "not_found"),
    ("GET", "/v1/jobs?limit=0", 422, "bad_parameter"),
    ("GET", "/v1/jobs?limit=99999999999999999999999", 422, "bad_parameter"),
    ("GET", "/v1/jobs?limit=%D9%A3", 422, "bad_parameter"),
    ("GET", "/v1/jobs?limit=5&limit=6", 422, "bad_parameter"),
    ("GET", "/v1/jobs?stat=failed", 422, "bad_parameter"),
    ("GET", "/v1/jobs?state=lost", 422, "bad_parameter"),
    ("GET", "/v1/jobs?after=--5.1-7", 422, "bad_parameter"),
    ("GET", "/v1/jobs?after=9999999999999999999.1-7", 422, "bad_parameter"),
    ("GET", "/v1/jobs?tenant=" + "x" * 300, 422, "bad_parameter"),
    ("GET", "/v1/nodes?after=north", 422, "bad_parameter"),
    ("GET", "/v1/events?topics=jobs,weather", 422, "bad_parameter"),
    ("GET", "/v1/events?after=-1", 422, "bad_parameter"),
]
"""What is asked, the status, the word."""


def shaped(said: Said) -> ErrorAnswer:
    """The error of an answer; fails if it has another shape."""
    assert said.headers["content-type"] == "application/json", said
    found = msgspec.json.decode(said.body, type=ErrorAnswer)
    assert found.error.code
    assert found.error.message
    return found


@pytest.fixture(scope="module")
def headers(live: LiveLeague) -> dict[str, str]:
    return bearer(live, Role.ADMIN, "errors")


@pytest.fixture(scope="module")
def door(live: LiveLeague) -> Address:
    return live.league.broker("b1").door


@pytest.fixture(scope="module")
def context(live: LiveLeague) -> ssl.SSLContext:
    return nobody(live)


@pytest.mark.parametrize(("verb", "path", "status", "code"), ODD)
def test_odd_requests(
    door: Address,
    context: ssl.SSLContext,
    headers: dict[str, str],
    verb: str,
    path: str,
    status: int,
    code: str,
) -> None:
    said = ask(door, context, verb, path, headers=headers)
    assert (said.status, shaped(said).error.code) == (status, code)
    if status == 405:
        assert "OPTIONS" in said.headers["allow"]


@pytest.mark.parametrize(
    ("body", "more", "status", "code"),
    [
        (b"", {}, 400, "not_json"),
        (b"{", {}, 400, "not_json"),
        (b"\xff\xfe", {}, 400, "not_json"),
        (b'{"jobs": ' + b"[" * 100_000, {}, 400, "not_json"),
        (b"[]", {}, 422, "bad_request"),
        (b'{"jobs": []}', {}, 422, "bad_request"),
        (b'{"jobs": {}}', {}, 422, "bad_request"),
        (b'{"jobs": [{"command": "true"}], "job": 1}', {}, 422, "bad_request"),
        (b'{"jobs": [7]}', {}, 422, "bad_jobs"),
        (b'{"jobs": [{"count": 1e400}]}', {}, 422, "bad_request"),
        (b'{"jobs": [{"count": ' + b"9" * 4_000 + b"}]}", {}, 422, "bad_jobs"),
        (b'{"jobs": [{"name": "\\ud800"}]}', {}, 400, "not_json"),
        (b'{"jobs": [{"name": "a\\u0000b"}]}', {}, 422, "bad_jobs"),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "not_json"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "not_json"),
        (b"{}", {"Content-Length": str(BODY_BYTES_MAX + 1)}, 413, "too_large"),
        (b'{"jobs": [{}]}', {"Idempotency-Key": "a b"}, 422, "bad_parameter"),
    ],
)  # fmt: skip
def test_odd_bodies(
    door: Address, context: ssl.SSLContext, headers: dict[str, str], body: bytes, more: dict[str, str],
    status: int, code: str,
) -> None:  # fmt: skip
    said = ask(door, context, "POST", "/v1/jobs", body, {**headers, **more})
    assert (said.status, shaped(said).error.code) == (status, code), said.body[:300]


def test_what_is_not_http_is_told_so(door: Address, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection((door.host, door.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=door.host) as secure,
    ):
        secure.sendall(b"\x00\x01 nonsense\r\n\r\n")
        said = b"".join(iter(lambda: secure.recv(4_096), b""))
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert msgspec.json.decode(body, type=ErrorAnswer).error.code == "not_http"


def test_heads_and_options(door: Address, context: ssl.SSLContext, headers: dict[str, str]) -> None:
    for path in ("/healthz", "/v1/jobs", "/v1/events", "/openapi.json"):
        said = ask(door, context, "HEAD", path, headers=headers)
        assert (said.status, said.body) == (200, b""), path
        options = ask(door, context, "OPTIONS", path)
        assert (options.status, options.body) == (204, b"")
        assert "GET" in options.headers["allow"]


def test_lists_come_in_pages(live: LiveLeague, door: Address, headers: dict[str, str]) -> None:
    context = nobody(live)
    tenant = "pages"
    wanted = [live.submit({"tenant": tenant, "name": f"j{n}", "command": "true"}) for n in range(7)]

    def pages(path: str, key: str, size: int) -> list[list[Any]]:
        found: list[list[Any]] = []
        after = ""
        while True:
            said = ask(door, context, "GET", f"{path}limit={size}{after}", headers=headers)
            page = msgspec.json.decode(said.body)
            found.append(page[key])
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    listed = pages(f"/v1/jobs?tenant={tenant}&", "jobs", 3)
    assert [row["id"] for page in listed for row in page] == wanted[::-1]
    assert all(len(page) <= 3 for page in listed)
    nodes = pages("/v1/nodes?", "nodes", 2)
    assert [(n["cluster"], n["node"]) for page in nodes for n in page] == [
        ("north", 0), ("north", 1), ("north", 2), ("far", 0),
    ]  # fmt: skip
    job = live.submit({"count": 5, "command": "true"})
    live.wait(job)
    assert [t["index"] for page in pages(f"/v1/jobs/{job}/tasks?", "tasks", 2) for t in page] == list(
        range(5)
    )
    job = live.submit({"groups": [{"name": "a"}, {"name": "b", "needs": ["a"]}], "command": "true"})
    live.wait(job)
    decisions = [d for page in pages(f"/v1/jobs/{job}/decisions?", "decisions", 1) for d in page]
    whole = ask(door, context, "GET", f"/v1/jobs/{job}/decisions?limit=1000", headers=headers)
    assert decisions == msgspec.json.decode(whole.body)["decisions"]
    assert len(decisions) >= 2
    serials = [d["serial"] for d in decisions]
    assert serials == sorted(set(serials))


def test_a_cluster_lists_its_nodes_in_pages(live: LiveLeague, headers: dict[str, str]) -> None:
    place, context = live.league.cluster("north").door, nobody(live)
    first = msgspec.json.decode(ask(place, context, "GET", "/v1/cluster?limit=2", headers=headers).body)
    assert [node["node"] for node in first["nodes"]] == [0, 1]
    rest = ask(place, context, "GET", f"/v1/cluster?limit=2&after={first['next']}", headers=headers)
    last = msgspec.json.decode(rest.body)
    assert ([node["node"] for node in last["nodes"]], last["next"]) == ([2], None)
