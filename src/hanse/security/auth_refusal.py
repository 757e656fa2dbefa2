"""Refusals of the door: why somebody was not let in, as values."""

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """Why a token or a request for a certificate was refused."""

    UNKNOWN = "unknown"
    """No such token, or not its secret: the two are not told apart."""
    EXPIRED = "expired"
    USED = "used"
    REVOKED = "revoked"
    BAD_REQUEST = "bad_request"
    """What was sent is no request for a certificate that we issue."""
    WRONG_AUTHORITY = "wrong_authority"
    """The authority is not the one that the token names."""
    WRONG_CERTIFICATE = "wrong_certificate"
    """The certificate is not the one that was asked for."""


class Refusal(msgspec.Struct, frozen=True):
    """Somebody was not let in."""

    reason: Reason
    detail: str = ""
    """A sentence for the people who run the league; it holds no secret."""
