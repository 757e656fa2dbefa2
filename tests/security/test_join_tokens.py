"""Join tokens and enrolment: once, in time, by the right one, and for what the token says only."""

import multiprocessing
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.model.ids import SECOND
from hanse.security import join_tokens
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_authority import Authority
from hanse.security.certificate_parser import read_certificate
from hanse.security.credentials import Credentials
from hanse.security.enrollment import accept, certificate_request, check_authority, enrol, new_key, renew
from hanse.security.identity import Identity, Role
from hanse.security.join_tokens import JoinGrant, JoinTokenError, JoinTokenStore, parse_join_token
from tests.security.leagues import DAY, Clock

NOON = 1_800_000_000 * SECOND
PIN = "sha256:" + "ab" * 32

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy host is no finding."""


def book_in(directory: Path, clock: Clock | None = None) -> JoinTokenStore:
    return JoinTokenStore(directory, PIN, clock or Clock(NOON))


def reason(answer: object) -> AuthRefusalReason:
    assert isinstance(answer, AuthRefusal), answer
    return answer.reason


# --- tokens ----------------------------------------------------------------------------------------------


def test_a_token_is_good_once(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    token = book.create(Role.WARDEN, "c1")
    assert book.redeem(token, NOON) == JoinGrant(Role.WARDEN, "c1")
    assert reason(book.redeem(token, NOON)) is AuthRefusalReason.USED
    assert reason(book_in(tmp_path).redeem(token, NOON)) is AuthRefusalReason.USED, "and so after a restart"


def test_a_token_is_one_short_line_and_carries_the_fingerprint(tmp_path: Path) -> None:
    token = book_in(tmp_path).create(Role.WARDEN, "c1")
    assert len(token) < 100
    assert len(token.split()) == 1
    invitation = parse_join_token(f" {token}\n")
    assert not isinstance(invitation, AuthRefusal)
    assert invitation.fingerprint == PIN


def test_a_token_ends(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    token = book.create(Role.WARDEN, "c1", lifetime=DAY)
    assert reason(book.redeem(token, NOON + DAY)) is AuthRefusalReason.EXPIRED
    assert book.redeem(token, NOON + DAY - 1) == JoinGrant(Role.WARDEN, "c1")


def test_the_secret_is_not_on_disk(tmp_path: Path) -> None:
    token = book_in(tmp_path).create(Role.WARDEN, "c1")
    secret = token.split(".")[2]
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    invitation = parse_join_token(token)
    assert not isinstance(invitation, AuthRefusal)
    assert secret.encode() not in stored
    assert invitation.secret not in stored
    assert invitation.secret.hex().encode() not in stored
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_wrong_secret_is_unknown_and_uses_nothing_up(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    token, other = book.create(Role.WARDEN, "c1"), book.create(Role.WARDEN, "c2")
    parts = token.split(".")
    parts[2] = other.split(".")[2]
    assert reason(book.redeem(".".join(parts), NOON)) is AuthRefusalReason.UNKNOWN
    assert book.redeem(token, NOON) == JoinGrant(Role.WARDEN, "c1")
    assert book.redeem(other, NOON) == JoinGrant(Role.WARDEN, "c2")


@UNHURRIED
@given(st.text(max_size=200) | st.binary(max_size=64).map(lambda data: "hanse1." + data.hex()))
def test_no_text_is_taken_for_a_token(text: str) -> None:
    assert reason(parse_join_token(text)) is AuthRefusalReason.UNKNOWN


@UNHURRIED
@given(st.data())
def test_a_changed_token_is_never_redeemed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    book = book_in(tmp_path_factory.mktemp("book"))
    token = book.create(Role.ADMIN, "ann")
    at = data.draw(st.integers(0, len(token.rsplit(".", 1)[0]) - 1))
    changed = token[:at] + data.draw(st.sampled_from("abcXYZ019-_. ")) + token[at + 1 :]
    if changed.strip() != token:
        assert isinstance(book.redeem(changed, NOON), AuthRefusal)
    assert book.redeem(token, NOON) == JoinGrant(Role.ADMIN, "ann")


def test_the_book_is_bounded_and_sweeps_what_is_long_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_tokens, "TOKENS_MAX", 3)
    clock = Clock(NOON)
    book = book_in(tmp_path, clock)
    old = [book.create(Role.RUNNER, f"r{number}") for number in range(3)]
    with pytest.raises(JoinTokenError, match="3 tokens already"):
        book.create(Role.RUNNER, "r4")
    clock.now += 2 * DAY
    assert reason(book.redeem(old[0], clock.now)) is AuthRefusalReason.EXPIRED
    clock.now += join_tokens.FORGET_AFTER
    fresh = book.create(Role.RUNNER, "r4")
    assert reason(book.redeem(old[0], clock.now)) is AuthRefusalReason.UNKNOWN
    assert book.redeem(fresh, clock.now) == JoinGrant(Role.RUNNER, "r4")


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"entries":{},"version":2}', b"\xff", b'{"entries":['])
def test_a_damaged_book_is_told_and_lets_nobody_in(tmp_path: Path, damage: bytes) -> None:
    book = book_in(tmp_path)
    token = book.create(Role.ADMIN, "ann")
    (tmp_path / "tokens.json").write_bytes(damage)
    with pytest.raises(JoinTokenError, match="damaged"):
        book.redeem(token, NOON)


def test_tokens_are_for_plain_names_and_a_sensible_time(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    with pytest.raises(JoinTokenError, match="name"):
        book.create(Role.ADMIN, "a/b")
    for lifetime in (0, 10**18):
        with pytest.raises(JoinTokenError, match="must live"):
            book.create(Role.ADMIN, "ann", lifetime)


def _redeem(directory: Path, token: str, results: "multiprocessing.Queue[bool]") -> None:
    results.put(isinstance(book_in(directory).redeem(token, NOON), JoinGrant))


def test_of_several_processes_one_redeems(tmp_path: Path) -> None:
    token = book_in(tmp_path).create(Role.ADMIN, "ann")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    crowd = [context.Process(target=_redeem, args=(tmp_path, token, results)) for _ in range(4)]
    for process in crowd:
        process.start()
    answers = [results.get(timeout=60) for _ in crowd]
    for process in crowd:
        process.join()
    results.close()
    results.join_thread()
    assert sorted(answers) == [False, False, False, True]


# --- enrolment -------------------------------------------------------------------------------------------


def test_the_way_in(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca", "local", Clock(NOON))
    book = JoinTokenStore(tmp_path / "ca", authority.fingerprint, Clock(NOON))
    token = book.create(Role.WARDEN, "c1")
    assert check_authority(authority.certificate, token) is None
    key = new_key()
    certificate = enrol(authority, book, certificate_request(key), token, ("10.0.0.7",), NOON)
    assert isinstance(certificate, str)
    credentials = Credentials(tmp_path / "c1")
    assert accept(credentials, key, certificate, authority.certificate) == Identity(
        "local", Role.WARDEN, "c1"
    )
    assert credentials.certificate().identity == Identity("local", Role.WARDEN, "c1")
    assert reason(enrol(authority, book, certificate_request(key), token, (), NOON)) is AuthRefusalReason.USED


def test_a_request_that_cannot_be_met_leaves_the_token(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    book = JoinTokenStore(tmp_path, authority.fingerprint, Clock(NOON))
    token = book.create(Role.WARDEN, "c1")
    assert reason(enrol(authority, book, "nonsense", token, (), NOON)) is AuthRefusalReason.BAD_REQUEST
    assert (
        reason(enrol(authority, book, certificate_request(new_key()), token, ("a b",), NOON))
        is AuthRefusalReason.BAD_REQUEST
    )
    assert isinstance(enrol(authority, book, certificate_request(new_key()), token, (), NOON), str)


def test_an_expired_token_enrols_nobody(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    book = JoinTokenStore(tmp_path, authority.fingerprint, Clock(NOON))
    token = book.create(Role.WARDEN, "c1")
    late = NOON + DAY
    assert (
        reason(enrol(authority, book, certificate_request(new_key()), token, (), late))
        is AuthRefusalReason.EXPIRED
    )


def test_a_token_that_was_made_before_its_name_was_revoked_enrols_nobody(tmp_path: Path) -> None:
    clock = Clock(NOON)
    authority = Authority.create(tmp_path, "local", clock)
    book = JoinTokenStore(tmp_path, authority.fingerprint, clock)
    ended = NOON + 60 * SECOND
    old, later = book.create(Role.VIEWER, "ann"), book.create(Role.VIEWER, "ann", after=ended)
    answer = enrol(
        authority, book, certificate_request(new_key()), old, now=NOON, until=lambda _role, _name: ended
    )
    assert reason(answer) is AuthRefusalReason.REVOKED
    fresh = enrol(
        authority, book, certificate_request(new_key()), later, now=NOON, until=lambda _role, _name: ended
    )
    assert isinstance(fresh, str)
    assert read_certificate(fresh).issued_at > ended
    assert isinstance(enrol(authority, book, certificate_request(new_key()), old, now=NOON), str), (
        "it was not used up"
    )


def test_a_token_of_before_that_was_written_down_counts_as_older(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    token = book.create(Role.VIEWER, "ann")
    page = msgspec.json.decode((tmp_path / "tokens.json").read_bytes())
    for entry in page["entries"].values():
        del entry["made"]
    (tmp_path / "tokens.json").write_bytes(msgspec.json.encode(page))
    assert reason(book.redeem(token, NOON, lambda _role, _name: 0)) is AuthRefusalReason.REVOKED
    assert book.redeem(token, NOON, lambda _role, _name: -1) == JoinGrant(Role.VIEWER, "ann")


def test_who_is_revoked_while_they_join_gets_nothing_that_lasts(tmp_path: Path) -> None:
    """The list is looked at once: what is made does not count as later than what came in between."""
    authority = Authority.create(tmp_path, "local", Clock(NOON))
    book = JoinTokenStore(tmp_path, authority.fingerprint, Clock(NOON))
    token = book.create(Role.VIEWER, "ann")
    answers = iter([-1, NOON + 60 * SECOND])
    fresh = enrol(
        authority, book, certificate_request(new_key()), token, now=NOON, until=lambda _r, _n: next(answers)
    )
    assert isinstance(fresh, str)
    assert read_certificate(fresh).issued_at <= NOON + 60 * SECOND


def test_another_authority_is_noticed_before_the_secret_is_sent(tmp_path: Path) -> None:
    ours, theirs = Authority.create(tmp_path / "a", "local"), Authority.create(tmp_path / "b", "local")
    token = JoinTokenStore(tmp_path / "a", ours.fingerprint).create(Role.WARDEN, "c1")
    refusal = check_authority(theirs.certificate, token)
    assert refusal is not None
    assert refusal.reason is AuthRefusalReason.WRONG_AUTHORITY
    assert reason(check_authority("nonsense", token)) is AuthRefusalReason.WRONG_AUTHORITY
    assert reason(check_authority(ours.certificate, "nonsense")) is AuthRefusalReason.UNKNOWN


def test_renewal_is_for_the_same_holder_and_any_key(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "local")
    holder = Identity("local", Role.BROKER, "b1")
    fresh = renew(authority, holder, certificate_request(new_key()))
    assert isinstance(fresh, str)
    assert read_certificate(fresh).identity == holder
    assert (
        reason(renew(authority, Identity("other", Role.BROKER, "b1"), certificate_request(new_key())))
        is AuthRefusalReason.BAD_REQUEST
    )


def test_what_was_not_asked_for_is_not_kept(tmp_path: Path) -> None:
    ours, theirs = Authority.create(tmp_path / "a", "local"), Authority.create(tmp_path / "b", "local")
    holder, other = (Identity("local", Role.BROKER, name) for name in ("b1", "b2"))
    key = new_key()
    cases = [
        (ours.issue(holder, certificate_request(new_key())), ours),  # another key
        (theirs.issue(holder, certificate_request(key)), ours),  # another authority
        (ours.issue(other, certificate_request(key)), ours),  # somebody else
        (ours.certificate, ours),  # nobody
        ("nonsense", ours),
    ]
    credentials = Credentials(tmp_path / "b1")
    for issued, authority in cases:
        assert isinstance(issued, str)
        answer = accept(credentials, key, issued, authority.certificate, holder)
        assert reason(answer) is AuthRefusalReason.WRONG_CERTIFICATE
    assert not credentials.path.exists()
