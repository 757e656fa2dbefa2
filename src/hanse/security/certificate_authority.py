"""The league's private certificate authority: one P-256 key in one directory.

``hanse init`` calls ``Authority.create``. It never replaces an existing authority: every member trusts its
key. Imports ``cryptography``.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hanse.model.ids import SECOND
from hanse.security import atomic_files
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_parser import fingerprint_of
from hanse.security.home import AUTHORITY_CERTIFICATE, AUTHORITY_KEY, AUTHORITY_SOURCE
from hanse.security.identity import BACKDATE, Identity, Role, name_problem
from hanse.security.private_keys import encode_public_key, load_certificate_request, load_key, new_key
from hanse.security.revocation_list import ACCESS_DAYS_MAX
from hanse.security.wall_time import wall_now

DAY: Final = 24 * 3_600 * SECOND
MEMBER_LIFETIME: Final = DAY
PERSON_LIFETIME: Final = 30 * DAY
LIFETIME_MAX: Final = ACCESS_DAYS_MAX * DAY
"""Longest lifetime: a revoked name leaves the revocation list when nothing of it can be valid any more."""
AUTHORITY_LIFETIME: Final = 3_650 * DAY
HOSTS_MAX: Final = 16
KEY_FILE: Final = AUTHORITY_KEY
CERTIFICATE_FILE: Final = AUTHORITY_CERTIFICATE
_HOST_PART: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"{_HOST_PART}(\.{_HOST_PART})*", re.ASCII)
_HOST_CHARACTERS_MAX: Final = 253


class AuthorityError(Exception):
    """The authority cannot be made or opened; the message says what to do."""


class Authority:
    """Issues the league's certificates. ``clock``: microseconds since 1970, read at every issue."""

    def __init__(self, key: str, certificate: str, clock: Callable[[], int] = wall_now) -> None:
        self._key = load_key(key)
        self._own = x509.load_pem_x509_certificate(certificate.encode("ascii"))
        self._clock = clock
        names = self._own.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        self.league = str(names[0].value) if names else ""
        """Name of the league."""
        self.certificate = certificate
        """Its own certificate as PEM, which members trust."""
        public = self._own.public_key()
        if name_problem(self.league) is not None or not isinstance(public, ec.EllipticCurvePublicKey):
            raise AuthorityError("this is not a certificate of a league's authority")
        if encode_public_key(public) != encode_public_key(self._key.public_key()):
            raise AuthorityError("the authority's key and certificate do not belong together")
        self.fingerprint = fingerprint_of(encode_public_key(public))
        """``sha256:`` and the digest of the public key; join tokens carry it."""

    @classmethod
    def create(cls, directory: Path, league: str, clock: Callable[[], int] = wall_now) -> "Authority":
        """Create an authority in a directory. Raise ``AuthorityError`` if there is one already."""
        problem = name_problem(league)
        if problem is not None:
            raise AuthorityError(f"the league's name: {problem}")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = new_key()
        certificate = _self_sign(load_key(key), league, clock())
        occupied = f"{directory} has an authority already; nothing was changed"
        if (directory / CERTIFICATE_FILE).exists():
            raise AuthorityError(occupied)
        try:
            # If two processes create one at the same time, the one that writes its key first wins.
            atomic_files.write_new(directory / KEY_FILE, key.encode("ascii"), atomic_files.PRIVATE)
        except FileExistsError:
            raise AuthorityError(occupied) from None
        atomic_files.write_new(directory / CERTIFICATE_FILE, certificate.encode("ascii"), atomic_files.PUBLIC)
        return cls(key, certificate, clock)

    @classmethod
    def open(cls, directory: Path, clock: Callable[[], int] = wall_now) -> "Authority":
        """Open the authority of a directory."""
        try:
            key = (directory / KEY_FILE).read_text(encoding="ascii")
            certificate = (directory / CERTIFICATE_FILE).read_text(encoding="ascii")
        except FileNotFoundError as error:
            raise AuthorityError(f"there is no authority here: {error.filename} is missing") from None
        try:
            return cls(key, certificate, clock)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise AuthorityError(f"the authority's files are damaged: {error}") from None

    @classmethod
    def copy(
        cls, directory: Path, key: str, trusted: str, source: str, clock: Callable[[], int] = wall_now
    ) -> "Authority":
        """Keep the key of a trusted authority, fetched from the broker ``source``.

        ``trusted``: the authority's certificate as this machine knows it. Raise ``AuthorityError``, and write
        nothing, if the key does not match. The key is written last: a reader that sees it sees all the rest.
        """
        try:
            authority = cls(key, trusted, clock)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise AuthorityError(f"{source} did not send a valid key: {error}") from None
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)
        if (directory / KEY_FILE).exists() and (directory / KEY_FILE).read_text(encoding="ascii") != key:
            raise AuthorityError(f"{directory} has another authority already; nothing was changed")
        atomic_files.replace(directory / CERTIFICATE_FILE, trusted.encode("ascii"), atomic_files.PRIVATE)
        atomic_files.replace(directory / AUTHORITY_SOURCE, source.encode("ascii"), atomic_files.PRIVATE)
        with suppress(FileExistsError):  # another broker of this home was first
            atomic_files.write_new(directory / KEY_FILE, key.encode("ascii"), atomic_files.PRIVATE)
        return authority

    def sign(self, data: bytes) -> bytes:
        """Return the authority's signature (DER) of bytes that cannot be taken for a certificate: an access
        token's begin with its prefix, a certificate's with a tag of DER."""
        assert data[:1].isalpha(), "only texts are signed"
        return self._key.sign(data, ec.ECDSA(hashes.SHA256()))

    def issue(
        self,
        identity: Identity,
        csr_pem: str,
        hosts: Sequence[str] = (),
        lifetime: int | None = None,
        after: int = -1,
    ) -> str | AuthRefusal:
        """Return a certificate as PEM for the key of a request; nothing else of the request is used.

        ``hosts`` are names and addresses for programs that check them; members do not. ``lifetime`` in
        microseconds; the default is a day for members and thirty days for people. ``after``: the certificate
        counts as issued later than this, because its holder's name is revoked up to then.
        """
        key = load_certificate_request(csr_pem)
        if isinstance(key, str):
            return AuthRefusal(AuthRefusalReason.BAD_REQUEST, key)
        problem = self._problem(identity, hosts)
        if problem:
            return AuthRefusal(AuthRefusalReason.BAD_REQUEST, problem)
        if lifetime is None:
            lifetime = MEMBER_LIFETIME if identity.role.is_member else PERSON_LIFETIME
        assert 0 < lifetime <= LIFETIME_MAX, f"a lifetime of {lifetime} microseconds"
        now = max(self._clock(), (after // SECOND + 1) * SECOND)
        if now - self._clock() > BACKDATE:
            return AuthRefusal(
                AuthRefusalReason.REVOKED,
                f"{identity.name} is revoked until a time in the future. Compare the clocks",
            )
        until = min(_moment(now + lifetime), self._own.not_valid_after_utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(identity.league, identity.name, identity.role))
            .issuer_name(self._own.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(now - BACKDATE))
            .not_valid_after(until)
        )
        return _sign(_add_extensions(builder, self._key.public_key(), key, identity, hosts), self._key)

    def _problem(self, identity: Identity, hosts: Sequence[str]) -> str:
        """Return the reason why no certificate is issued for this identity; empty: one is."""
        if identity.league != self.league:
            return f"this is the authority of {self.league}, not of another league"
        if name_problem(identity.name) is not None:
            return name_problem(identity.name) or ""
        return hosts_problem(hosts)


def hosts_problem(hosts: Sequence[str]) -> str:
    """Return the reason why no certificate can name these hosts, as a sentence; empty: one can."""
    if len(hosts) > HOSTS_MAX:
        return f"a certificate names at most {HOSTS_MAX} hosts"
    wrong = [host for host in hosts if _parse_host(host) is None]
    return f"{wrong[0][:64]!r} is neither a host's name nor an address" if wrong else ""


def _self_sign(key: ec.EllipticCurvePrivateKey, league: str, now: int) -> str:
    name = _subject(league, f"authority of {league}"[:64], None)
    usage = _usage(signs=True)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now - BACKDATE))
        .not_valid_after(_moment(now + AUTHORITY_LIFETIME))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return _sign(builder, key)


def _add_extensions(
    builder: x509.CertificateBuilder,
    issuer: ec.EllipticCurvePublicKey,
    key: ec.EllipticCurvePublicKey,
    identity: Identity,
    hosts: Sequence[str],
) -> x509.CertificateBuilder:
    """Add the extensions: holder and key usage."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri)]
    names += [name for host in hosts if (name := _parse_host(host)) is not None]
    both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(both, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    """Return the usage of a key: to sign certificates, or for handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(league: str, name: str, role: Role | None) -> x509.Name:
    """Return the subject, for people who look at certificates; our code reads only the league's name."""
    unit = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, str(role))] if role is not None else []
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, league),
            *unit,
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> str:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode("ascii")


def _parse_host(host: str) -> x509.DNSName | x509.IPAddress | None:
    """Return a host in the form of certificates; None if it is invalid."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        plain = len(host) <= _HOST_CHARACTERS_MAX and _HOST.fullmatch(host) is not None
        return x509.DNSName(host) if plain else None


def _moment(micro: int) -> datetime:
    """Return the time in whole seconds: certificates have no finer unit."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=micro // SECOND)
