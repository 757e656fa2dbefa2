"""``GET /metrics`` on every door: for Prometheus, which shows a certificate like everybody else."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hanse.live.door.answers import VIEW, guarded
from hanse.live.identity.identity import Identity
from hanse.live.observe.exposition import CONTENT_TYPE
from hanse.live.observe.member_watch import MemberWatch


def metrics_route(watch: MemberWatch, count: Callable[[str], None]) -> Route:
    """The route, for whoever may look."""

    async def metrics(_: Request, __: Identity) -> Response:
        return Response(await watch.scrape(), headers={"content-type": CONTENT_TYPE})

    return Route("/metrics", guarded(VIEW, metrics, count))
