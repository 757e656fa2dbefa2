"""``GET /metrics`` on every server, for Prometheus, which shows a certificate like any other client."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hanse.live.http.extra_routes import VIEW, guard
from hanse.live.telemetry.member_metrics import MemberMetrics
from hanse.live.telemetry.prometheus_text import CONTENT_TYPE
from hanse.security.identity import Identity


def metrics_route(member_metrics: MemberMetrics, count: Callable[[str], None]) -> Route:
    """Return the route, for the roles that may view."""

    async def metrics(_: Request, __: Identity) -> Response:
        return Response(await member_metrics.scrape(), headers={"content-type": CONTENT_TYPE})

    return Route("/metrics", guard(VIEW, metrics, count))
