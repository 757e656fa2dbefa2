"""A holder's own key and certificate, the authority it trusts, and the TLS contexts made of them.

Two files in one directory: ``identity.pem`` (private key and certificate together, so that a renewal replaces
both at once) and ``ca.pem``. Contexts speak TLS 1.3 only and trust the league's authority only. Host names
are not checked, because addresses of members change: a client names the *identity* it expects, and the
handshake fails with any other.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hanse.security import atomic_files
from hanse.security.certificate_parser import Certificate, read_certificate
from hanse.security.identity import Identity, Role, peer_identity

IDENTITY_FILE: Final = "identity.pem"
AUTHORITY_FILE: Final = "ca.pem"


class Credentials:
    """The files of one holder. Contexts are made from the files' content at that moment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / IDENTITY_FILE
        """Key and certificate; ``certificate_parser.is_due_for_renewal`` reads it."""
        self.authority_path = directory / AUTHORITY_FILE

    def certificate(self) -> Certificate:
        """Return the fields of the present certificate."""
        return read_certificate(self.path.read_text(encoding="ascii"))

    def authority(self) -> str:
        """Return the trusted authority's certificate as PEM."""
        return self.authority_path.read_text(encoding="ascii")

    def problem(self) -> str | None:
        """Return which file cannot be used, and why; None: all can be used."""
        for path in (self.authority_path, self.path):
            if not path.is_file():
                return f"{path} is missing"
        try:
            context = _context(ssl.PROTOCOL_TLS_SERVER, self.authority())
        except (ssl.SSLError, ValueError) as error:
            return f"{self.authority_path} is damaged: {error}"
        try:
            self.certificate()
            context.load_cert_chain(self.path, password="")  # never ask a person for a password
        except (ssl.SSLError, ValueError) as error:
            return f"{self.path} is damaged: {error}"
        return None

    def store(self, key: str, certificate: str, authority: str | None = None) -> None:
        """Write a key and its certificate over older ones; and, when joining, the authority to trust."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if authority is not None:
            atomic_files.replace(self.authority_path, authority.encode("ascii"), atomic_files.PUBLIC)
        atomic_files.replace(self.path, (key + certificate).encode("ascii"), atomic_files.PRIVATE)

    def server_context(self, require: bool = True) -> ssl.SSLContext:
        """Return a context for servers. ``require``: whether a client must show a certificate; a certificate
        that is shown is always verified."""
        context = _context(ssl.PROTOCOL_TLS_SERVER, self.authority())
        context.verify_mode = ssl.CERT_REQUIRED if require else ssl.CERT_OPTIONAL
        context.num_tickets = 0  # a resumed session would show no certificate
        context.load_cert_chain(self.path)
        return context

    def client_context(self, server: Identity, show: bool = True) -> ssl.SSLContext:
        """Return a context for connections to ``server``: the handshake fails with any other identity.
        ``show``: whether to show the own certificate; a client with an access token needs none."""
        context = _context(ssl.PROTOCOL_TLS_CLIENT, self.authority())
        if show:
            context.load_cert_chain(self.path)
        _expect(context, lambda found: found == server, str(server))
        return context


def joining_context(authority: str, league: str | None = None) -> ssl.SSLContext:
    """Return a context for a newcomer without a certificate that knows the authority (see
    ``enrollment.check_authority``): it accepts any broker of the league."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, authority)
    _expect(
        context,
        lambda found: found.role is Role.BROKER and league in (None, found.league),
        "a broker",
    )
    return context


def _context(protocol: int, authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    return context


class _Expectation:
    """The identity that a context's connections expect at the other end."""

    def __init__(self, accepts: Callable[[Identity], bool], wanted: str) -> None:
        self._accepts = accepts
        self._wanted = wanted

    def check(self, peer: ssl.SSLObject | ssl.SSLSocket) -> None:
        """Raise the exception of a failed verification, so that callers handle only one kind of failure."""
        found = peer_identity(peer)
        if found is None or not self._accepts(found):
            raise ssl.SSLCertVerificationError(f"expected {self._wanted}, found {found or 'no certificate'}")


def _expect(context: ssl.SSLContext, accepts: Callable[[Identity], bool], wanted: str) -> None:
    """Make a context's handshakes fail unless the other end has an accepted identity.

    The standard library has no call-back for this, but lets a context choose the class of its connections;
    the check runs before the first byte of a program is sent or received.
    """
    expectation = _Expectation(accepts, wanted)

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            expectation.check(self)

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            expectation.check(self)

    context.sslobject_class = CheckedObject
    context.sslsocket_class = CheckedSocket
