"""The metrics of an HTTPS server: requests by route, method and status, and the duration of each."""

import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hanse.live.telemetry.prometheus_text import (
    Histogram,
    MetricFamily,
    counter,
    gauge,
    histogram,
    unlabelled_sample,
)

METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
"""Methods that are counted by name; others are counted together, so that strangers cannot add labels."""
NO_ROUTE: Final = "(none)"
"""Route of requests for paths that do not exist."""
STATUS_BROKEN: Final = 500
"""Status that a client gets when an answer fails before it has begun."""


class HttpMetrics:
    """The request counts and durations of one server."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._open = 0

    def wrap(self, application: ASGIApp) -> ASGIApp:
        """Return the application with its requests measured. Routes are known by their handlers; a request
        without one has the route ``NO_ROUTE``."""
        paths = {route.endpoint: route.path for route in getattr(application, "routes", ())}

        async def measured_application(scope: Scope, receive: Receive, send: Send) -> None:
            status = STATUS_BROKEN

            async def send_noting_status(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            self._open += 1
            begin = time.perf_counter()
            try:
                await application(scope, receive, send_noting_status)
            finally:
                self._open -= 1
                route = paths.get(scope.get("endpoint"), NO_ROUTE)
                method = scope.get("method", "")
                self._note(route, method, status, time.perf_counter() - begin)

        return measured_application

    def _note(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method if method in METHODS else "(other)", status)
        self._counts[key] = self._counts.get(key, 0) + 1
        found = self._seconds.get(route)
        if found is None:
            found = self._seconds[route] = Histogram()
        found.observe(seconds)

    def families(self) -> list[MetricFamily]:
        """Return the server's metrics."""
        samples = [
            ((("method", method), ("route", route), ("status", str(status))), count)
            for (route, method, status), count in sorted(self._counts.items())
        ]
        return [
            counter("hanse_door_requests_total", "Requests answered, by route, method and status.", samples),
            histogram(
                "hanse_door_request_duration_seconds",
                "Time from a request to the end of its answer, by route; some routes wait on purpose.",
                [((("route", route),), self._seconds[route]) for route in sorted(self._seconds)],
            ),
            gauge("hanse_door_requests_open", "Requests in progress.", unlabelled_sample(self._open)),
        ]
