"""``GET /metrics`` on every server, for Prometheus, which shows a certificate like any other client."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hanse.live.http.answers import VIEW, guarded
from hanse.live.telemetry.member_metrics import MemberWatch
from hanse.live.telemetry.prometheus_text import CONTENT_TYPE
from hanse.security.identity import Identity


def metrics_route(watch: MemberWatch, count: Callable[[str], None]) -> Route:
    """Return the route, for the roles that may view."""

    async def metrics(_: Request, __: Identity) -> Response:
        return Response(await watch.scrape(), headers={"content-type": CONTENT_TYPE})

    return Route("/metrics", guarded(VIEW, metrics, count))
