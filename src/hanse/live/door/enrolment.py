"""The part of a broker's door where newcomers get their first certificate and members their next.

Joining needs no certificate, only a token that was made here; what a newcomer trusts is the authority whose
fingerprint the token carries.
"""

from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hanse.live import notary_desk
from hanse.live.door.answers import ANYBODY, RefusedError, body_of, guarded, json_answer
from hanse.live.home import Home
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import Identity

TEXT_CHARACTERS_MAX: Final = 16_384
HOSTS_MAX: Final = 16


class Enrolment:
    """The routes of joining and renewing. Only a broker whose home has the authority can meet them."""

    def __init__(self, home: Home, credentials: Credentials, count: Callable[[str], None]) -> None:
        self._home = home
        self._credentials = credentials
        self._count = count

    def routes(self) -> list[Route]:
        """For the broker's application."""
        return [
            Route("/v1/authority", self._authority),
            Route("/v1/join", self._join, methods=["POST"]),
            Route("/v1/renew", guarded(ANYBODY, self._renew, self._count), methods=["POST"]),
        ]

    async def _authority(self, _: Request) -> Response:
        return json_answer({"authority": self._credentials.authority()})

    async def _join(self, request: Request) -> Response:
        try:
            return json_answer(await self._ask("enrol", _joining(await body_of(request))))
        except RefusedError as refused:
            self._count(f"refused_{refused.code}")
            return refused.answer()

    async def _renew(self, request: Request, peer: Identity) -> Response:
        body = _form(await body_of(request), ("csr",))
        return json_answer(await self._ask("renew", {"csr": body["csr"], "identity": peer.uri}))

    async def _ask(self, verb: str, given: dict[str, object]) -> dict[str, Any]:
        if not self._home.authority.is_dir():
            hint = "ask the broker of the machine where 'hanse init' was run"
            raise RefusedError(503, "no_authority", "this broker does not have the league's authority", hint)
        try:
            answer = await notary_desk.ask(verb, self._home.path, given)
        except OSError as error:
            raise RefusedError(
                503, "no_notary", f"no certificate could be made: {error}", "try again"
            ) from None
        if "refused" in answer:
            raise RefusedError(
                403, str(answer["code"]), str(answer["refused"]), "make a new token with 'hanse token create'"
            )
        return answer


def _form(body: object, names: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(body, dict) and all(
        isinstance(body.get(name), str) and len(body[name]) <= TEXT_CHARACTERS_MAX for name in names
    ):
        return body
    raise RefusedError(422, "bad_request", f"the body is a JSON object with the texts {', '.join(names)}")


def _joining(body: object) -> dict[str, object]:
    form = _form(body, ("csr", "token"))
    hosts = form.get("hosts", [])
    if not isinstance(hosts, list) or len(hosts) > HOSTS_MAX or not all(isinstance(h, str) for h in hosts):
        raise RefusedError(422, "bad_request", f"hosts is a list of at most {HOSTS_MAX} names")
    return {"csr": form["csr"], "token": form["token"], "hosts": hosts}
