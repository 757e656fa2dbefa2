"""A league's authority and certificates for tests, made in a temporary directory."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hanse.model.ids import SECOND
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.enrollment import accept, certificate_request, new_key
from hanse.security.identity import Identity, Role

DAY = 24 * 3_600 * SECOND


class Clock:
    """A wall clock that tests set."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class PaperLeague:
    """An authority, and credentials of whoever a test needs."""

    def __init__(self, directory: Path, name: str = "local") -> None:
        self.directory = directory
        self.name = name
        self.authority = Authority.create(directory / "authority", name)

    def identity(self, role: Role, name: str) -> Identity:
        return Identity(self.name, role, name)

    def credentials(
        self, role: Role, name: str, *, lifetime: int | None = None, authority: Authority | None = None
    ) -> Credentials:
        """Fresh credentials in a directory of their own, in place of older ones of that name."""
        credentials = Credentials(self.directory / f"{role}-{name}")
        self.renew(credentials, role, name, lifetime=lifetime, authority=authority)
        return credentials

    def renew(
        self,
        credentials: Credentials,
        role: Role,
        name: str,
        *,
        lifetime: int | None = None,
        authority: Authority | None = None,
    ) -> None:
        key = new_key()
        identity = self.identity(role, name)
        issued = (authority or self.authority).issue(
            identity, certificate_request(key), ("127.0.0.1",), lifetime
        )
        assert isinstance(issued, str), issued
        assert accept(credentials, key, issued, self.authority.certificate, identity) == identity


def odd_credentials(league: PaperLeague, directory: Path, uris: tuple[str, ...]) -> Credentials:
    """Genuine, of our authority, but with none or several identities: it never issues such."""
    pem = new_key()
    key = serialization.load_pem_private_key(pem.encode("ascii"), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signer = serialization.load_pem_private_key(
        (league.directory / "authority" / "ca.key").read_bytes(), None
    )
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificate(league.authority.certificate.encode("ascii"))
    names = [x509.DNSName("host.example"), *(x509.UniformResourceIdentifier(uri) for uri in uris)]
    moment = datetime.now(tz=UTC)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "odd")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(minutes=5))
        .not_valid_after(moment + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer, critical=False)
        .sign(signer, hashes.SHA256())
    )
    credentials = Credentials(directory)
    issued = made.public_bytes(serialization.Encoding.PEM).decode("ascii")
    credentials.store(pem, issued, league.authority.certificate)
    return credentials


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory; raises what either side raises. The server's end, then the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1], ends[0]
