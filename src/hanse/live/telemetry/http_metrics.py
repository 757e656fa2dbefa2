"""What passes a door: requests by route, method and status, and how long each took."""

import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hanse.live.telemetry.prometheus_text import Family, Histogram, counter, gauge, histogram, plain

METHODS: Final = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
"""Others are counted together: what strangers write must not become a label."""
NO_ROUTE: Final = "(none)"
"""Requests for what does not exist."""
STATUS_BROKEN: Final = 500
"""What a client is told when an answer fails before it began."""


class DoorWatch:
    """Counts the requests of one door."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._open = 0

    def around(self, application: ASGIApp) -> ASGIApp:
        """The application, looked at. Its routes are known by their handlers; a request that reaches none has
        the route ``NO_ROUTE``."""
        paths = {route.endpoint: route.path for route in getattr(application, "routes", ())}

        async def observed(scope: Scope, receive: Receive, send: Send) -> None:
            status = STATUS_BROKEN

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            self._open += 1
            begin = time.perf_counter()
            try:
                await application(scope, receive, noting)
            finally:
                self._open -= 1
                route = paths.get(scope.get("endpoint"), NO_ROUTE)
                method = scope.get("method", "")
                self._note(route, method, status, time.perf_counter() - begin)

        return observed

    def _note(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method if method in METHODS else "(other)", status)
        self._counts[key] = self._counts.get(key, 0) + 1
        found = self._seconds.get(route)
        if found is None:
            found = self._seconds[route] = Histogram()
        found.observe(seconds)

    def families(self) -> list[Family]:
        """The door's metrics."""
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
            gauge("hanse_door_requests_open", "Requests under way.", plain(self._open)),
        ]
