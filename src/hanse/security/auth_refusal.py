"""Refusals of authentication, as values."""

from enum import StrEnum

import msgspec


class AuthRefusalReason(StrEnum):
    """The reason why a token or a request for a certificate was refused."""

    UNKNOWN = "unknown"
    """No such token, or a wrong secret: the answer is the same for both."""
    EXPIRED = "expired"
    USED = "used"
    REVOKED = "revoked"
    BAD_REQUEST = "bad_request"
    """The input is no request for a certificate that we issue."""
    WRONG_AUTHORITY = "wrong_authority"
    """The authority is not the one that the token names."""
    WRONG_CERTIFICATE = "wrong_certificate"
    """The certificate is not the requested one."""


class AuthRefusal(msgspec.Struct, frozen=True):
    """The refusal of a token or a request for a certificate."""

    reason: AuthRefusalReason
    detail: str = ""
    """A sentence for the operators of the league; it holds no secret."""
