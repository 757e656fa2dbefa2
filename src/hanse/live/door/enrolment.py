"""The part of a broker's door where newcomers get their first certificate and members their next.

Joining needs no certificate, only a token that was made here; what a newcomer trusts is the authority whose
fingerprint the token carries.
"""

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from hanse.live import notary_desk
from hanse.live.door.gate import Call, Handler, certificate_revoked
from hanse.live.door.operations import AUTHORITY, JOIN, RENEW, Operation
from hanse.live.door.records import AuthorityAnswer, JoinAnswer, JoinRequest, RenewAnswer, RenewRequest
from hanse.live.door.replies import RefusedError, body_of, json_answer, later
from hanse.live.home import Home
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.refusal import Reason


class Enrolment:
    """Joining and renewing. Only a broker whose home has the authority can do that."""

    def __init__(self, home: Home, credentials: Credentials, count: Callable[[str], None]) -> None:
        self._home = home
        self._credentials = credentials
        self._count = count

    def handlers(self) -> dict[Operation, Handler]:
        """For the broker's door."""
        return {AUTHORITY: self._authority, JOIN: self._join, RENEW: self._renew}

    async def _authority(self, _: Call) -> Response:
        return json_answer(AuthorityAnswer(self._credentials.authority()))

    async def _join(self, call: Call) -> Response:
        wish = await body_of(call.request, JoinRequest)
        answer = await self._ask("enrol", {"csr": wish.csr, "token": wish.token})
        return json_answer(JoinAnswer(answer["certificate"], answer["authority"], answer["league"]))

    async def _renew(self, call: Call) -> Response:
        if call.by_token:
            # Else a token that lives for days would buy a key pair that lives on after it.
            raise RefusedError(403, "forbidden", "a certificate is renewed by showing it, not with a token")
        wish = await body_of(call.request, RenewRequest)
        given: dict[str, object] = {"csr": wish.csr, "identity": call.peer.uri, "issued": call.issued}
        try:
            answer = await self._ask("renew", given)
        except RefusedError as refused:
            if refused.code == Reason.REVOKED:  # while the notary was at work
                raise certificate_revoked(call.peer) from None
            raise
        return json_answer(RenewAnswer(answer["certificate"]))

    async def _ask(self, verb: str, given: dict[str, object]) -> dict[str, Any]:
        if not self._home.authority.is_dir():
            refused = later(503, "no_authority", "this broker does not have the league's authority")
            refused.hint = "ask the broker of the machine where 'hanse init' was run"
            raise refused
        try:
            answer = await notary_desk.ask(verb, self._home.path, given)
        except OSError as error:
            raise later(503, "no_notary", f"no certificate could be made: {error}") from None
        if "refused" in answer:
            raise RefusedError(
                403, str(answer["code"]), str(answer["refused"]), "make a new token with 'hanse token create'"
            )
        self._count(f"certificates_{verb}")
        return answer
