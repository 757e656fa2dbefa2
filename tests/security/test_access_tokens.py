"""Access tokens: only genuine ones of this league, not expired and not revoked, are believed."""

from pathlib import Path
from random import Random

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.cli.main import hanse, run
from hanse.client.exit_codes import ExitCode
from hanse.security import signature_verifier
from hanse.security.access_token_issuer import AccessTokenError, AccessTokenIssuer
from hanse.security.access_tokens import (
    CACHE_MAX,
    AccessTokenClaims,
    AccessTokenVerifier,
    encode_base64,
    token_text,
)
from hanse.security.auth_refusal import AuthRefusal, AuthRefusalReason
from hanse.security.certificate_authority import Authority
from hanse.security.certificate_parser import read_certificate
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
from hanse.security.private_keys import certificate_request, encode_public_key, load_key, new_key
from hanse.security.revocation_list import (
    ACCESS_DAYS_MAX,
    CLOCK_SKEW,
    DAY,
    REVOKED_FILE,
    RevocationListError,
    RevocationSet,
    known_revocations,
    revoked_until,
)

NOW = 1_800_000_000_000_000


class Place:
    """A league's authority, a member that checks, and a clock that tests set."""

    def __init__(self, path: Path, league: str = "local") -> None:
        self.home = Home(path)
        self.now = NOW
        self.authority = Authority.create(self.home.authority, league, lambda: self.now)
        self.ledger = AccessTokenIssuer(self.home, self.authority, lambda: self.now)
        self.book = AccessTokenVerifier(
            league, self.authority.certificate, path / REVOKED_FILE, lambda: self.now
        )

    def reason(self, token: str) -> AuthRefusalReason:
        found = self.book.check(token)
        assert isinstance(found, AuthRefusal), found
        return found.reason


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "home")


def test_a_token_says_who_its_bearer_is_until_it_expires(place: Place) -> None:
    token = place.ledger.create(Role.SUBMITTER, "ci", 2)
    for _ in range(2):  # read, then remembered
        assert place.book.check(token) == Identity("local", Role.SUBMITTER, "ci")
    place.now += 2 * DAY - 1
    assert isinstance(place.book.check(token), Identity)
    place.now += 1
    assert place.reason(token) is AuthRefusalReason.EXPIRED


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, str]:
    """One place and one good token, for many tries."""
    place = Place(tmp_path_factory.mktemp("place"))
    return place, place.ledger.create(Role.VIEWER, "ann", 1)


@settings(max_examples=300, deadline=None)
@given(place_in=st.integers(0, 5_000), other=st.sampled_from("abcXYZ019-_.=é "), how=st.integers(0, 2))
def test_no_other_text_is_a_token(settled: tuple[Place, str], place_in: int, other: str, how: int) -> None:
    place, token = settled
    at = place_in % len(token)
    changed = (token[:at] + other + token[at + 1 :], token[:at], token + other)[how]
    if changed != token:
        assert place.reason(changed) is AuthRefusalReason.UNKNOWN
    assert isinstance(place.book.check(token), Identity)


def test_claims_cannot_be_exchanged(place: Place) -> None:
    head, claims, seal = place.ledger.create(Role.VIEWER, "ann", 1).split(".")
    del claims
    wish = AccessTokenClaims("local", Role.ADMIN, "ann", "00", NOW, NOW + DAY)
    assert (
        place.reason(f"{head}.{encode_base64(msgspec.json.encode(wish))}.{seal}") is AuthRefusalReason.UNKNOWN
    )


def test_tokens_of_another_league_are_strangers(place: Place, tmp_path: Path) -> None:
    assert (
        place.reason(Place(tmp_path / "other").ledger.create(Role.ADMIN, "eve", 1))
        is AuthRefusalReason.UNKNOWN
    )
    foreign = AccessTokenClaims("elsewhere", Role.ADMIN, "eve", "00", NOW, NOW + DAY)
    assert place.reason(token_text(foreign, place.authority.sign)) is AuthRefusalReason.UNKNOWN


@pytest.mark.parametrize("role", [Role.BROKER, Role.WARDEN, Role.RUNNER])
def test_no_token_makes_a_member(place: Place, role: Role) -> None:
    with pytest.raises(AccessTokenError):
        place.ledger.create(role, "b1", 1)
    signed = token_text(AccessTokenClaims("local", role, "b1", "00", NOW, NOW + DAY), place.authority.sign)
    assert place.reason(signed) is AuthRefusalReason.UNKNOWN


def test_revoking_ends_the_tokens_of_a_name_at_once(place: Place) -> None:
    first, second = (place.ledger.create(Role.VIEWER, "ann", 1) for _ in range(2))
    bob = place.ledger.create(Role.VIEWER, "bob", 1)
    assert isinstance(place.book.check(first), Identity)
    serial = place.ledger.list_tokens()[0].access.serial
    assert [access.serial for access in place.ledger.revoke("ann", serial)] == [serial]
    assert place.reason(first) is AuthRefusalReason.REVOKED
    assert isinstance(place.book.check(second), Identity)
    assert len(place.ledger.revoke("ann")) == 1
    assert place.reason(second) is AuthRefusalReason.REVOKED
    assert isinstance(place.book.check(bob), Identity)
    assert [given.revoked for given in place.ledger.list_tokens()] == [True, True, False]
    assert place.ledger.revoke("ann") == []
    assert place.ledger.revoke("bob", "no such serial") == []
    assert isinstance(place.book.check(bob), Identity)


def test_revoking_a_name_ends_the_certificates_that_it_has_until_now(place: Place) -> None:
    def issued(name: str) -> int:
        until = revoked_until(place.home.path, name, place.now)
        made = place.authority.issue(
            Identity("local", Role.VIEWER, name), certificate_request(new_key()), after=until
        )
        assert isinstance(made, str), made
        return read_certificate(made).issued_at

    old, other = issued("ann"), issued("bob")
    assert not place.book.is_person_revoked("ann", old)
    place.ledger.revoke("ann")
    assert place.ledger.revoked_names() == {"ann": NOW + CLOCK_SKEW}
    assert place.book.is_person_revoked("ann", old)
    assert place.book.is_person_revoked("ann", old + CLOCK_SKEW), "clocks differ"
    assert not place.book.is_person_revoked("bob", other)
    assert not place.book.is_person_revoked("ann", issued("ann")), (
        "one that is made afterwards is good at once"
    )
    assert isinstance(place.book.check(place.ledger.create(Role.VIEWER, "ann", 1)), Identity)
    place.now += ACCESS_DAYS_MAX * DAY
    assert place.ledger.revoked_names() == {"ann": NOW + CLOCK_SKEW}, "a certificate may live for as long"
    place.now += CLOCK_SKEW
    place.ledger.revoke("bob")
    assert list(place.ledger.revoked_names()) == ["bob"]


def test_ending_one_token_ends_no_certificate(place: Place) -> None:
    place.ledger.create(Role.VIEWER, "ann", 1)
    serial = place.ledger.list_tokens()[0].access.serial
    assert place.ledger.revoke("ann", serial[:8])
    assert not place.book.is_person_revoked("ann", NOW)
    assert place.ledger.revoked_names() == {}


def test_the_founder_is_asked_before_the_founders_own_certificate_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    file = tmp_path / "league.yaml"
    file.write_text("brokers: [{name: b1}]\nclusters: [{name: c1, backend: 'null', nodes: [{cpus: 1}]}]\n")
    home = ["--home", str(tmp_path / "home")]
    hand = CliRunner()
    assert hand.invoke(hanse, ["init", *home, str(file)]).exit_code == 0
    own = Credentials(Home(tmp_path / "home").person("admin"))
    words = ["access", "revoke", *home, "admin"]
    for answer in ("n\n", ""):
        asked = hand.invoke(hanse, words, input=answer)
        assert asked.exit_code == 1
        assert "hanse renew --anew" in asked.output
        assert not (tmp_path / "home" / REVOKED_FILE).exists(), "nothing was done"
    book = AccessTokenVerifier("local", own.authority(), tmp_path / "home" / REVOKED_FILE)
    assert not book.is_person_revoked("admin", own.certificate().issued_at)
    assert run([*words, "--yes"]) == ExitCode.UNAVAILABLE, "done here, and no broker is there to spread it"
    assert book.is_person_revoked("admin", own.certificate().issued_at)
    before = own.path.read_bytes()
    refused = hand.invoke(hanse, ["renew", *home, "admin"])
    assert refused.exit_code == 1
    assert "was revoked" in refused.output
    assert own.path.read_bytes() == before
    assert hand.invoke(hanse, ["renew", *home, "admin", "--anew"]).exit_code == 0
    assert not book.is_person_revoked("admin", own.certificate().issued_at)
    assert hand.invoke(hanse, ["renew", *home, "admin"]).exit_code == 0, "the new one is renewed as ever"
    assert not book.is_person_revoked("admin", own.certificate().issued_at)


def test_what_has_expired_leaves_the_lists(place: Place) -> None:
    place.ledger.create(Role.VIEWER, "ann", 1)
    place.ledger.revoke("ann")
    place.now += 2 * DAY
    place.ledger.create(Role.VIEWER, "bob", 1)
    assert [given.access.name for given in place.ledger.list_tokens()] == ["bob"]
    place.ledger.revoke("bob")
    place.now += 2 * DAY
    place.ledger.create(Role.VIEWER, "carl", 1)
    place.ledger.revoke("carl")
    listed = msgspec.json.decode((place.home.path / REVOKED_FILE).read_bytes())["serials"]
    assert len(listed) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"serials": {}, "version": 3}', b"\xff"])
def test_a_list_that_cannot_be_read_closes_the_door(place: Place, content: bytes) -> None:
    token = place.ledger.create(Role.VIEWER, "ann", 1)
    (place.home.path / REVOKED_FILE).write_bytes(content)
    for _ in range(2):
        with pytest.raises(RevocationListError):
            place.book.check(token)
    (place.home.path / REVOKED_FILE).unlink()
    assert isinstance(place.book.check(token), Identity)


def test_only_so_many_tokens_are_remembered(place: Place) -> None:
    signed = [
        token_text(
            AccessTokenClaims("local", Role.VIEWER, "ann", str(n), NOW, NOW + DAY), place.authority.sign
        )
        for n in range(CACHE_MAX + 5)
    ]
    assert all(isinstance(place.book.check(token), Identity) for token in signed)
    assert len(place.book._verified) == CACHE_MAX


def test_the_authority_signs_nothing_that_could_be_a_certificate(place: Place) -> None:
    with pytest.raises(AssertionError):
        place.authority.sign(b"\x30\x82\x01\x00")


@settings(max_examples=60, deadline=None)
@given(
    signed=st.binary(max_size=200), at=st.integers(0, 200), bit=st.integers(0, 7), junk=st.binary(max_size=80)
)
def test_both_ways_of_checking_a_signature_agree(signed: bytes, at: int, bit: int, junk: bytes) -> None:
    check = signature_verifier.openssl_verifier()
    assert check is not None, "this Python hides its OpenSSL"
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    private = load_key(_KEY)
    key, seal = encode_public_key(private.public_key()), private.sign(signed, ec.ECDSA(hashes.SHA256()))
    bent = bytearray(seal)
    bent[at % len(seal)] ^= 1 << bit
    for given_key, given_seal, text in (
        (key, seal, signed), (key, seal, signed + b"x"), (key, bytes(bent), signed), (key, junk, signed),
        (junk, seal, signed), (key[:-1], seal, signed), (key, b"", signed),
    ):  # fmt: skip
        assert check(given_key, given_seal, text) == signature_verifier.verify_with_cryptography(
            given_key, given_seal, text
        )
    assert check(key, seal, signed)
    assert not check(key, seal, signed + b"x")


_KEY = new_key()


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    hand = CliRunner()
    home = ["--home", str(place.home.path)]
    made = hand.invoke(hanse, ["access", "create", *home, "ci", "--role", "submitter"])
    assert made.exit_code == 0, made.output
    book = AccessTokenVerifier("local", place.authority.certificate, place.home.path / REVOKED_FILE)
    assert book.check(made.output.strip()) == Identity("local", Role.SUBMITTER, "ci")
    listed = hand.invoke(hanse, ["access", "list", *home])
    assert "ci  submitter" in listed.output
    assert made.output.strip() not in listed.output
    # done here, and nobody is there to tell the others
    assert run(["access", "revoke", *home, "ci"]) == ExitCode.UNAVAILABLE
    assert isinstance(book.check(made.output.strip()), AuthRefusal)
    assert "revoked" in hand.invoke(hanse, ["access", "list", *home]).output
    assert "ci  everything made until" in hand.invoke(hanse, ["access", "list", *home]).output
    assert hand.invoke(hanse, ["access", "revoke", *home, "ci", "--serial", "0"]).exit_code == 1
    assert run(["access", "revoke", *home, "cii"]) == ExitCode.USAGE
    assert run(["access", "revoke", *home, "no name", "--unknown"]) == ExitCode.FAILED
    assert hand.invoke(hanse, ["access", "create", *home, "no name", "--role", "viewer"]).exit_code == 1
    assert hand.invoke(hanse, ["access", "create", *home, "b9", "--role", "broker"]).exit_code == 2
    assert hand.invoke(hanse, ["access", "list", "--home", str(tmp_path / "none")]).exit_code == 1


# --- lists -------------------------------------------------------------------------------------------------


MOMENTS = st.integers(NOW - 400 * DAY, NOW + 2 * DAY)
LISTS = st.builds(
    RevocationSet,
    st.dictionaries(st.sampled_from(["a1", "b2", "c3"]), MOMENTS),
    st.dictionaries(st.sampled_from(["ann", "bob"]), MOMENTS),
)


@given(lists=st.lists(LISTS, min_size=1, max_size=5), order=st.randoms(use_true_random=False))
def test_lists_are_joined_in_any_order_and_as_often_as_one_likes(
    lists: list[RevocationSet], order: Random
) -> None:
    def all_of(several: list[RevocationSet]) -> RevocationSet:
        known = RevocationSet()
        for one in several:
            known = known.merge(one, NOW)
        return known

    known = all_of(lists)
    again = [*lists, *lists, known]
    order.shuffle(again)
    assert msgspec.json.encode(all_of(again)) == msgspec.json.encode(known)
    for one in lists:
        assert all(
            known.is_token_revoked(serial, "x", NOW) for serial, end in one.serials.items() if end > NOW
        )
        assert all(
            known.is_token_revoked("x", name, until)
            for name, until in one.names.items()
            if until > NOW - 365 * DAY
        )
    assert not any(end <= NOW for end in known.serials.values())


def test_a_name_ends_what_was_issued_until_then_and_a_later_token_is_good(place: Place) -> None:
    old = place.ledger.create(Role.VIEWER, "ann", 1)
    bob = place.ledger.create(Role.VIEWER, "bob", 1)
    ahead = 60_000_000
    place.book.peer_revocations = RevocationSet(names={"ann": NOW + ahead})
    assert place.reason(old) is AuthRefusalReason.REVOKED
    assert isinstance(place.book.check(bob), Identity)
    member = place.home.path / "b1"
    member.mkdir()
    (member / REVOKED_FILE).write_bytes(msgspec.json.encode(place.book.peer_revocations))
    assert [given.revoked for given in place.ledger.list_tokens()] == [True, False]
    new = place.ledger.create(Role.VIEWER, "ann", 1)  # by a clock that is behind the one that revoked
    assert isinstance(place.book.check(new), Identity)
    assert known_revocations(place.home.path, NOW) == place.book.peer_revocations


def test_what_others_told_and_cannot_be_read_closes_the_door(place: Place) -> None:
    token = place.ledger.create(Role.VIEWER, "ann", 1)
    place.book.peer_revocations = None
    with pytest.raises(RevocationListError):
        place.book.check(token)


@pytest.mark.parametrize(
    "bad",
    [
        RevocationSet(serials={"": 1}),
        RevocationSet(serials={"f" * 65: 1}),
        RevocationSet(names={"n" * 64: 1}),
        RevocationSet(serials={str(n): 1 for n in range(20_001)}),
    ],
)
def test_a_list_has_bounds(bad: RevocationSet) -> None:
    assert bad.problem()
    assert RevocationSet({"ab": 1}, {"ann": 1}).problem() is None
