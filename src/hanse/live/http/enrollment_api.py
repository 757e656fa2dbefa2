"""The operations of a broker for certificates: join, renew, and fetch the authority's key.

The key is for other brokers. Joining needs no certificate, only a token that was made at this broker; a
newcomer trusts the authority whose fingerprint is in the token.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from hanse.api.records import (
    AuthorityAnswer,
    AuthorityKey,
    JoinAnswer,
    JoinRequest,
    RenewAnswer,
    RenewRequest,
)
from hanse.league.config import LeagueConfig
from hanse.live.ca import client
from hanse.live.http.admitted_request import AdmittedRequest, Handler
from hanse.live.http.auth_middleware import certificate_revoked_error
from hanse.live.http.operation_record import Operation
from hanse.live.http.operation_table import AUTHORITY, AUTHORITY_KEY, JOIN, RENEW
from hanse.live.http.responses import RefusedError, json_answer, read_body, retry_later
from hanse.security.auth_refusal import AuthRefusalReason
from hanse.security.credentials import Credentials
from hanse.security.home import AUTHORITY_KEY as KEY_FILE
from hanse.security.home import Home

log = logging.getLogger(__name__)


class EnrollmentApi:
    """Operations to join and renew. Only a broker whose home has the authority can serve them. ``league``
    returns the league of the newest file."""

    def __init__(
        self,
        home: Home,
        credentials: Credentials,
        league: Callable[[], LeagueConfig],
        count: Callable[[str], None],
    ) -> None:
        self._home = home
        self._credentials = credentials
        self._league = league
        self._count = count

    def handlers(self) -> dict[Operation, Handler]:
        """Return the handlers for the broker's server."""
        return {
            AUTHORITY: self._authority,
            AUTHORITY_KEY: self._authority_key,
            JOIN: self._join,
            RENEW: self._renew,
        }

    async def _authority(self, _: AdmittedRequest) -> Response:
        return json_answer(AuthorityAnswer(self._credentials.authority()))

    async def _authority_key(self, call: AdmittedRequest) -> Response:
        """Answer with the key, unless the newest file retired the broker: its certificate is valid for a
        day."""
        name = call.peer.name
        if name not in [entry.name for entry in self._league().serving_brokers]:
            raise RefusedError(
                409, "not_in_league", f"the league file has no broker {name}, or has retired it"
            )
        if not self._home.has_authority:
            raise _no_authority()
        try:
            key = await asyncio.to_thread((self._home.authority / KEY_FILE).read_text, encoding="ascii")
        except OSError as error:
            raise retry_later(
                503, "no_authority", f"the authority's key cannot be read: {error.strerror}"
            ) from None
        self._count("authority_keys_given")
        log.warning("broker %s was given the authority's key", name)
        answer = json_answer(AuthorityKey(key))
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _join(self, call: AdmittedRequest) -> Response:
        body = await read_body(call.request, JoinRequest)
        answer = await self._ask_ca("enrol", {"csr": body.csr, "token": body.token})
        return json_answer(JoinAnswer(answer["certificate"], answer["authority"], answer["league"]))

    async def _renew(self, call: AdmittedRequest) -> Response:
        if call.has_token:
            # Else a token that lives for days would buy a key pair that outlives it.
            raise RefusedError(403, "forbidden", "a renewal needs the present certificate, not a token")
        body = await read_body(call.request, RenewRequest)
        arguments: dict[str, object] = {
            "csr": body.csr,
            "identity": call.peer.uri,
            "issued": call.certificate_issued_at,
        }
        try:
            answer = await self._ask_ca("renew", arguments)
        except RefusedError as refused:
            if refused.code == AuthRefusalReason.REVOKED:  # while the CA process worked
                raise certificate_revoked_error(call.peer) from None
            raise
        return json_answer(RenewAnswer(answer["certificate"]))

    async def _ask_ca(self, verb: str, arguments: dict[str, object]) -> dict[str, Any]:
        if not self._home.has_authority:
            raise _no_authority()
        try:
            answer = await client.run_ca_process(verb, self._home.path, arguments)
        except OSError as error:
            raise retry_later(503, "no_notary", f"no certificate could be issued: {error}") from None
        if "refused" in answer:
            raise RefusedError(
                403, str(answer["code"]), str(answer["refused"]), "make a new token with 'hanse token create'"
            )
        self._count(f"certificates_{verb}")
        return answer


def _no_authority() -> RefusedError:
    refused = retry_later(503, "no_authority", "this broker does not have the league's authority yet")
    refused.hint = "ask another broker; it fetches the authority's key from the first one that has it"
    return refused
