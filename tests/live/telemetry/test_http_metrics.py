"""The metrics of a door: requests by route, not by what strangers write."""

import asyncio
from typing import Any

import pytest

from hanse.live.telemetry.http_metrics import NO_ROUTE, HttpMetrics
from hanse.live.telemetry.prometheus_text import render
from tests.live.telemetry.scraped import samples_of, total


def test_a_door_counts_by_route_and_not_by_what_strangers_write() -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        if request.path_params["job"] == "broken":
            raise RuntimeError("a bug")
        return Response(status_code=204)

    watch = HttpMetrics()
    application = watch.wrap(Starlette(routes=[Route("/v1/jobs/{job}", answer, methods=["GET", "POST"])]))

    async def ask(method: str, path: str) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            del message

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        await application(scope, receive, send)

    async def all_of_it() -> None:
        await ask("GET", "/v1/jobs/1-7")
        await ask("GET", "/v1/jobs/1-8")
        await ask("BREW", "/v1/jobs/1-8")
        await ask("GET", "/nothing/here")
        with pytest.raises(RuntimeError):
            await ask("GET", "/v1/jobs/broken")

    asyncio.run(all_of_it())
    found = samples_of(render(watch.families()))
    route = "/v1/jobs/{job}"
    assert total(found, "hanse_door_requests_total", route=route, method="GET", status="204") == 2
    assert total(found, "hanse_door_requests_total", route=route, method="(other)", status="405") == 1
    assert total(found, "hanse_door_requests_total", route=route, method="GET", status="500") == 1
    assert total(found, "hanse_door_requests_total", route=NO_ROUTE, status="404") == 1
    assert total(found, "hanse_door_request_duration_seconds_count", route=route) == 4
    assert total(found, "hanse_door_requests_open") == 0
