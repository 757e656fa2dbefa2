"""The way from a key to its certificate: joining and renewing. Imports ``cryptography``.

The steps; the caller carries the messages:

1. A new member makes a key (``new_key``), fetches the authority's certificate from any broker over a
   connection that it cannot trust yet, and compares it with its token (``check_authority``).
2. Over a new connection that trusts that authority (``credentials.joining_context``) it sends its token and
   ``certificate_request(key)``. The broker answers with ``enrol``: a certificate, or a refusal.
3. The member checks that it got what it asked for and keeps it (``accept``).
4. When two thirds of its life are over (``certificate_parser.is_due_for_renewal``) it sends a request for a
   new key over a connection with its present certificate, and gets its next one from ``renew``.
"""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_authority import Authority, hosts_problem
from hanse.security.certificate_parser import CertificateError, fingerprint_of, read_certificate
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity
from hanse.security.join_tokens import JoinTokenStore, RevokedUntil, never_revoked, parse_join_token
from hanse.security.private_keys import (
    certificate_request,
    encode_public_key,
    load_certificate_request,
    load_key,
    new_key,
)
from hanse.security.wall_time import wall_now

__all__ = ["accept", "certificate_request", "check_authority", "enrol", "new_key", "renew"]


def enrol(
    authority: Authority,
    tokens: JoinTokenStore,
    csr_pem: str,
    token: str,
    hosts: Sequence[str] = (),
    now: int | None = None,
    until: RevokedUntil = never_revoked,
) -> str | AuthRefusal:
    """Return a newcomer's first certificate as PEM, for the role and name of its token, and use the token up.

    A refused request leaves the token as it was. ``now``: microseconds since 1970. ``until``: returns the
    time up to which tokens were revoked; the certificate counts as issued later.
    """
    key = load_certificate_request(csr_pem)
    problem = key if isinstance(key, str) else hosts_problem(hosts)
    if problem:
        return AuthRefusal(AuthRefusalReason.BAD_REQUEST, problem)
    grant = tokens.redeem(token, wall_now() if now is None else now, until)
    if isinstance(grant, AuthRefusal):
        return grant
    identity = Identity(authority.league, grant.role, grant.name)
    return authority.issue(identity, csr_pem, hosts, after=grant.revoked_until)


def renew(
    authority: Authority, identity: Identity, csr_pem: str, hosts: Sequence[str] = (), after: int = -1
) -> str | AuthRefusal:
    """Return the next certificate of a holder. ``identity`` comes from the connection's certificate, and the
    new certificate says the same: nothing in the request can change it. The caller checks that the present
    one was not revoked; ``after``: the new one counts as issued later than this."""
    return authority.issue(identity, csr_pem, hosts, after=after)


def check_authority(authority_pem: str, token: str) -> AuthRefusal | None:
    """Return a refusal if a fetched authority must not be trusted; None if it is the one of the token."""
    parsed = parse_join_token(token)
    if isinstance(parsed, AuthRefusal):
        return parsed
    try:
        found = read_certificate(authority_pem)
    except CertificateError as error:
        return AuthRefusal(AuthRefusalReason.WRONG_AUTHORITY, str(error))
    if found.fingerprint != parsed.fingerprint:
        return AuthRefusal(
            AuthRefusalReason.WRONG_AUTHORITY, "this is not the authority that issued the token"
        )
    return None


def accept(
    credentials: Credentials, key: str, certificate: str, authority_pem: str, identity: Identity | None = None
) -> Identity | AuthRefusal:
    """Store a certificate that was issued for ``key``, if it is genuine; return the identity in it.

    ``identity``: the expected identity (the present one, at a renewal).
    """
    try:
        issued = x509.load_pem_x509_certificate(certificate.encode("ascii"))
        found = read_certificate(certificate)
        issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority_pem.encode("ascii")))
    except (ValueError, TypeError, InvalidSignature) as error:
        return AuthRefusal(
            AuthRefusalReason.WRONG_CERTIFICATE, f"the certificate is not of this authority: {error}"
        )
    if found.fingerprint != fingerprint_of(encode_public_key(load_key(key).public_key())):
        return AuthRefusal(AuthRefusalReason.WRONG_CERTIFICATE, "the certificate is for another key")
    if found.identity is None or identity not in (None, found.identity):
        return AuthRefusal(
            AuthRefusalReason.WRONG_CERTIFICATE, f"the certificate is for {found.identity or 'nobody'}"
        )
    credentials.store(key, certificate, authority_pem)
    return found.identity
