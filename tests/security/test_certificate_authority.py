"""The authority: what it issues, what it refuses, and that it is never replaced."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.model.ids import SECOND
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_authority import HOSTS_MAX, Authority, AuthorityError
from hanse.security.certificate_parser import (
    Certificate,
    CertificateError,
    fingerprint_of,
    is_due_for_renewal,
    read_certificate,
)
from hanse.security.credentials import Credentials, joining_context
from hanse.security.enrollment import certificate_request, new_key
from hanse.security.identity import BACKDATE, Identity, PeerCertificate, Role, peer_certificate
from hanse.security.private_keys import REQUEST_BYTES_MAX
from tests.security.leagues import DAY, Clock, PaperLeague, shake_hands

NOON = 1_800_000_000 * SECOND

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy host is no finding."""


def test_its_key_is_private_and_it_is_never_replaced(tmp_path: Path) -> None:
    first = Authority.create(tmp_path / "ca", "local")
    assert (tmp_path / "ca" / "ca.key").stat().st_mode & 0o777 == 0o600
    before = {path.name: path.read_bytes() for path in (tmp_path / "ca").iterdir()}
    with pytest.raises(AuthorityError, match="already"):
        Authority.create(tmp_path / "ca", "local")
    (tmp_path / "ca" / "ca.key").unlink()
    with pytest.raises(AuthorityError, match="already"):
        Authority.create(tmp_path / "ca", "local")
    assert not (tmp_path / "ca" / "ca.key").exists()
    (tmp_path / "ca" / "ca.key").write_bytes(before["ca.key"])
    (tmp_path / "ca" / "ca.pem").unlink()
    with pytest.raises(AuthorityError, match="already"):
        Authority.create(tmp_path / "ca", "local")
    (tmp_path / "ca" / "ca.pem").write_bytes(before["ca.pem"])
    assert {path.name: path.read_bytes() for path in (tmp_path / "ca").iterdir()} == before
    assert Authority.open(tmp_path / "ca").fingerprint == first.fingerprint


def test_a_missing_or_damaged_authority_is_told(tmp_path: Path) -> None:
    with pytest.raises(AuthorityError, match=r"ca\.key is missing"):
        Authority.open(tmp_path)
    Authority.create(tmp_path / "one", "local")
    Authority.create(tmp_path / "two", "local")
    key = tmp_path / "one" / "ca.key"
    key.write_bytes((tmp_path / "two" / "ca.key").read_bytes())
    with pytest.raises(AuthorityError, match="belong together"):
        Authority.open(tmp_path / "one")
    key.write_text("nonsense", encoding="ascii")
    with pytest.raises(AuthorityError, match="damaged"):
        Authority.open(tmp_path / "one")


def test_a_league_has_a_plain_name(tmp_path: Path) -> None:
    with pytest.raises(AuthorityError, match="name"):
        Authority.create(tmp_path, "two words")


def test_the_fingerprint_is_that_of_the_public_key(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "local")
    own = x509.load_pem_x509_certificate(authority.certificate.encode())
    key = own.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert authority.fingerprint == fingerprint_of(key) == read_certificate(authority.certificate).fingerprint


@pytest.mark.parametrize(("role", "days"), [(Role.BROKER, 1), (Role.RUNNER, 1), (Role.ADMIN, 30)])
def test_members_get_a_day_and_people_thirty(tmp_path: Path, role: Role, days: int) -> None:
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    pem = authority.issue(Identity("local", role, "x"), certificate_request(new_key()))
    assert isinstance(pem, str)
    found = read_certificate(pem)
    assert found.identity == Identity("local", role, "x")
    assert found.not_after == NOON + days * DAY
    assert found.not_before == NOON - 300 * SECOND


def test_what_our_reader_says_the_library_says_too(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    hosts = ("10.0.0.1", "::1", "node.example")
    pem = authority.issue(Identity("local", Role.WARDEN, "c1"), certificate_request(new_key()), hosts)
    assert isinstance(pem, str)
    theirs, ours = x509.load_pem_x509_certificate(pem.encode()), read_certificate(pem)
    assert theirs.not_valid_before_utc.timestamp() * SECOND == ours.not_before
    assert theirs.not_valid_after_utc.timestamp() * SECOND == ours.not_after
    names = theirs.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ours.identity is not None
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [ours.identity.uri]
    assert names.get_values_for_type(x509.DNSName) == ["node.example"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]


def rsa_request() -> str:
    key = rsa.generate_private_key(65537, 2048)
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def other_curve() -> str:
    key = ec.generate_private_key(ec.SECP384R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def forged_request() -> str:
    """One whose signature is another's: its sender does not have the key."""
    one, two = (
        x509.load_pem_x509_csr(certificate_request(new_key()).encode()).public_bytes(
            serialization.Encoding.DER
        )
        for _ in range(2)
    )
    length = min(len(one), len(two))
    mixed = one[: length - 70] + two[length - 70 : length]
    return ssl.DER_cert_to_PEM_cert(mixed).replace("CERTIFICATE", "CERTIFICATE REQUEST")


@pytest.mark.parametrize(
    "make",
    [
        rsa_request,
        other_curve,
        forged_request,
        lambda: "",
        lambda: "é",
        lambda: "x" * (REQUEST_BYTES_MAX + 1),
    ],
)
def test_requests_for_other_keys_or_none_are_refused(tmp_path: Path, make: object) -> None:
    authority = Authority.create(tmp_path, "local")
    answer = authority.issue(Identity("local", Role.BROKER, "b1"), make())  # type: ignore[operator]
    assert isinstance(answer, AuthRefusal)
    assert answer.reason is AuthRefusalReason.BAD_REQUEST


@pytest.mark.parametrize(
    ("identity", "hosts"),
    [
        (Identity("other", Role.BROKER, "b1"), ()),
        (Identity("local", Role.BROKER, "b/1"), ()),
        (Identity("local", Role.BROKER, "b1"), ("not a host",)),
        (Identity("local", Role.BROKER, "b1"), ("a",) * (HOSTS_MAX + 1)),
        (Identity("local", Role.BROKER, "b1"), ("*.example",)),
    ],
)
def test_only_our_own_kind_of_certificate_is_issued(
    tmp_path: Path, identity: Identity, hosts: tuple[str, ...]
) -> None:
    answer = Authority.create(tmp_path, "local").issue(identity, certificate_request(new_key()), hosts)
    assert isinstance(answer, AuthRefusal)


@pytest.mark.parametrize("ahead", [0, 1, SECOND - 1, 60 * SECOND, 60 * SECOND + 1])
def test_a_certificate_counts_as_later_than_what_was_revoked(tmp_path: Path, ahead: int) -> None:
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    holder = Identity("local", Role.VIEWER, "ann")
    plain = authority.issue(holder, certificate_request(new_key()))
    assert isinstance(plain, str)
    assert read_certificate(plain).issued_at == NOON
    later = authority.issue(holder, certificate_request(new_key()), after=NOON + ahead)
    assert isinstance(later, str)
    found = read_certificate(later)
    assert NOON + ahead < found.issued_at <= NOON + ahead + SECOND
    assert found.not_before <= NOON, "it is valid at once"


def test_no_certificate_is_issued_that_is_not_valid_yet(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    holder = Identity("local", Role.VIEWER, "ann")
    answer = authority.issue(holder, certificate_request(new_key()), after=NOON + BACKDATE)
    assert isinstance(answer, AuthRefusal)
    assert answer.reason is AuthRefusalReason.REVOKED
    assert isinstance(authority.issue(holder, certificate_request(new_key()), after=NOON + BACKDATE - 1), str)


def test_a_handshake_tells_when_the_certificate_was_issued(tmp_path: Path) -> None:
    league = PaperLeague(tmp_path)
    server, person = league.credentials(Role.BROKER, "b1"), league.credentials(Role.VIEWER, "ann")
    expected = league.identity(Role.BROKER, "b1")
    at_server, _ = shake_hands(server.server_context(), person.client_context(expected))
    assert peer_certificate(at_server) == PeerCertificate(
        league.identity(Role.VIEWER, "ann"), person.certificate().issued_at
    )


def test_a_certificate_is_due_at_two_thirds_of_its_life(tmp_path: Path) -> None:
    league = PaperLeague(tmp_path)
    credentials = league.credentials(Role.BROKER, "b1")
    found = credentials.certificate()
    due = found.not_before + (found.not_after - found.not_before) * 2 // 3
    assert not is_due_for_renewal(credentials.path, due - SECOND)
    assert is_due_for_renewal(credentials.path, due + SECOND)


@UNHURRIED
@given(st.data())
def test_a_damaged_certificate_is_told_and_nothing_else_is_raised(data: st.DataObject) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(SAMPLE))
    at = data.draw(st.integers(0, len(der) - 1))
    der[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    found: Certificate | CertificateError
    try:
        found = read_certificate(ssl.DER_cert_to_PEM_cert(bytes(der)))
    except CertificateError as error:
        found = error
    assert isinstance(found, Certificate) or str(found), "what is wrong is said"


@UNHURRIED
@given(st.text(max_size=300))
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    with pytest.raises(CertificateError):
        read_certificate(text)


def _sample() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(x509.Name([]))
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://local/broker/b1")])
    moments = [datetime(year, 1, 1, tzinfo=UTC) for year in (2030, 2070)]
    made = (
        builder.public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moments[0])
        .not_valid_after(moments[1])
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


SAMPLE = _sample()


def test_times_of_both_kinds_are_read() -> None:
    """Certificates write years from 2050 on in another way."""
    found = read_certificate(SAMPLE)
    assert found.not_before == 1_893_456_000 * SECOND
    assert found.not_after == 3_155_760_000 * SECOND
    assert found.identity == Identity("local", Role.BROKER, "b1")


# --- contexts --------------------------------------------------------------------------------------------


def test_a_dialler_refuses_anybody_but_whom_it_expects(tmp_path: Path) -> None:
    league = PaperLeague(tmp_path)
    server = league.credentials(Role.BROKER, "b1").server_context()
    dialler = league.credentials(Role.WARDEN, "c1")
    for wrong in ((Role.BROKER, "b2"), (Role.WARDEN, "b1")):
        with pytest.raises(ssl.SSLCertVerificationError, match="expected"):
            shake_hands(server, dialler.client_context(league.identity(*wrong)))


def test_another_authority_is_not_trusted_even_of_the_same_name(tmp_path: Path) -> None:
    ours, theirs = PaperLeague(tmp_path / "ours"), PaperLeague(tmp_path / "theirs")
    identity = ours.identity(Role.BROKER, "b1")
    server = theirs.credentials(Role.BROKER, "b1").server_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ours.credentials(Role.WARDEN, "c1").client_context(identity))


def test_a_client_certificate_may_be_optional_but_never_false(tmp_path: Path) -> None:
    ours, theirs = PaperLeague(tmp_path / "ours"), PaperLeague(tmp_path / "theirs")
    server = ours.credentials(Role.BROKER, "b1").server_context(require=False)
    at_server, _ = shake_hands(server, joining_context(ours.authority.certificate, "local"))
    assert at_server.getpeercert() is None
    impostor = theirs.credentials(Role.ADMIN, "eve")
    impostor.authority_path.write_text(ours.authority.certificate, encoding="ascii")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, impostor.client_context(ours.identity(Role.BROKER, "b1")))


def test_who_joins_talks_to_brokers_only(tmp_path: Path) -> None:
    league = PaperLeague(tmp_path)
    server = league.credentials(Role.WARDEN, "c1").server_context(require=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="expected a broker"):
        shake_hands(server, joining_context(league.authority.certificate))


def test_older_tls_is_not_spoken(tmp_path: Path) -> None:
    league = PaperLeague(tmp_path)
    credentials = league.credentials(Role.BROKER, "b1")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.load_verify_locations(cadata=league.authority.certificate)
    old.load_cert_chain(credentials.path)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(credentials.server_context(), old)


def test_keys_on_disk_are_private(tmp_path: Path) -> None:
    credentials = PaperLeague(tmp_path).credentials(Role.BROKER, "b1")
    assert credentials.path.stat().st_mode & 0o777 == 0o600
    assert isinstance(credentials, Credentials)
    assert [path.name for path in sorted(credentials.directory.iterdir())] == ["ca.pem", "identity.pem"]


def test_a_copy_is_private_and_issues_what_the_first_one_does(tmp_path: Path) -> None:
    first = Authority.create(tmp_path / "first", "local")
    key = (tmp_path / "first" / "ca.key").read_text(encoding="ascii")
    copy = Authority.copy(tmp_path / "copy", key, first.certificate, "b1")
    assert copy.fingerprint == Authority.open(tmp_path / "copy").fingerprint == first.fingerprint
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "copy").iterdir()} == {0o600}
    again = Authority.copy(tmp_path / "copy", key, first.certificate, "b2")
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize("what", ["another key", "no key"])
def test_a_key_that_is_not_the_trusted_authoritys_is_not_written(tmp_path: Path, what: str) -> None:
    trusted = Authority.create(tmp_path / "ours", "local").certificate
    Authority.create(tmp_path / "theirs", "local")
    key = (
        (tmp_path / "theirs" / "ca.key").read_text(encoding="ascii") if what == "another key" else "nonsense"
    )
    with pytest.raises(AuthorityError):
        Authority.copy(tmp_path / "copy", key, trusted, "b1")
    assert not (tmp_path / "copy").exists()


def test_a_copy_does_not_replace_an_authority(tmp_path: Path) -> None:
    kept = Authority.create(tmp_path / "kept", "local")
    other = Authority.create(tmp_path / "other", "local")
    key = (tmp_path / "other" / "ca.key").read_text(encoding="ascii")
    with pytest.raises(AuthorityError, match="has another authority"):
        Authority.copy(tmp_path / "kept", key, other.certificate, "b1")
    assert Authority.open(tmp_path / "kept").fingerprint == kept.fingerprint
