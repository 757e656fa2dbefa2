"""Who may do what: every role, with a certificate and with a token, at every operation of every door; and
everybody who must not be believed."""

import ssl
from pathlib import Path

import pytest

from hanse.league.config import Address
from hanse.live.http.operation_record import Operation
from hanse.live.http.operation_table import BROKER, OPENAPI, RENEW, RUNNER, WARDEN
from hanse.security.access_tokens import PEOPLE_ROLES, AccessTokenClaims, token_text
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import MEMBERS, Identity, Role
from hanse.security.private_keys import certificate_request, new_key
from hanse.security.revocation_list import DAY
from tests.live.harness import LiveLeague
from tests.live.http.conftest import Said, ask, ledger, nobody

DOORS = {"broker": BROKER, "warden": WARDEN, "runner": RUNNER}
LOOK = (
    *("list_nodes", "list_jobs", "plan_job", "get_job", "list_tasks", "explain_job", "list_decisions"),
    *("wait_for_job", "watch_events", "read_output", "list_waits", "get_cluster"),
)
MAY: dict[str, set[Role]] = {
    "get_league": set(Role),
    "renew_certificate": set(Role),
    "submit_jobs": {Role.SUBMITTER, Role.OPERATOR, Role.ADMIN},
    "cancel_job": {Role.SUBMITTER, Role.OPERATOR, Role.ADMIN},
    "drain_nodes": {Role.OPERATOR, Role.ADMIN},
    "revoke_access": {Role.ADMIN},
    "list_people": {Role.ADMIN},
    "list_revocations": {Role.ADMIN, *MEMBERS},
    "exchange_revocations": {Role.BROKER},
    "get_authority_key": {Role.BROKER},
    "get_league_file": {Role.OPERATOR, Role.ADMIN, *MEMBERS},
    "apply_league_file": {Role.ADMIN},
    "tell_league_file": {Role.BROKER},
    "tell_fenced": set(MEMBERS),
    "vote_league_file": {Role.BROKER},
    **{name: set(PEOPLE_ROLES) for name in LOOK},
}
"""Said again by hand: the table must agree with this."""
PUBLIC = {"health", "ready", "openapi", "get_authority", "join_league"}


def test_the_table_says_what_was_decided() -> None:
    for table in DOORS.values():
        for operation in table:
            assert operation.public == (operation.name in PUBLIC), operation.name
            assert set(operation.roles) == MAY.get(operation.name, set()), operation.name
    assert {operation.name for table in DOORS.values() for operation in table} == {*MAY, *PUBLIC}


def test_a_role_is_told_with_its_article() -> None:
    roles = (Role.OPERATOR, Role.ADMIN, Role.APPROVER, Role.VIEWER)
    assert [role.with_article for role in roles] == [
        "an operator", "an admin", "an approver", "a viewer",
    ]  # fmt: skip


def test_an_operation_is_for_nobody_unless_it_says_so() -> None:
    operation = Operation(name="new", verb="GET", path="/new", doc="")
    assert (operation.roles, operation.public) == ((), False)


def address(live: LiveLeague, door: str) -> Address:
    if door == "broker":
        return live.league.broker("b1").door
    return (
        live.league.cluster("north").door if door == "warden" else live.league.cluster("far").runners[0].door
    )


def tried(
    live: LiveLeague, door: str, operation: Operation, context: ssl.SSLContext, token: str = ""
) -> Said:
    """Ask for something in a way that changes nothing: for jobs that are not there, with bodies that are
    empty, and of what would last for ever only the head."""
    path = operation.path.replace("{job}", "1-4000000000").replace("{task}", "1-4000000000.0")
    verb = "HEAD" if operation.name == "watch_events" else operation.verb
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = None if operation.verb == "GET" else b"[]"
    return ask(address(live, door), context, verb, path, body, headers)


def certified(live: LiveLeague, directory: Path, role: Role) -> ssl.SSLContext:
    """Somebody with a certificate of this role, who checks host names."""
    authority = Authority.open(live.home.authority)
    key = new_key()
    issued = authority.issue(Identity(live.league.name, role, f"some-{role}"), certificate_request(key))
    assert isinstance(issued, str)
    holder = Credentials(directory / role)
    holder.store(key, issued, authority.certificate)
    context = nobody(live)
    context.load_cert_chain(holder.path)
    return context


@pytest.fixture(scope="module")
def outside(live: LiveLeague) -> ssl.SSLContext:
    return nobody(live)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("role", list(Role))
def test_a_certificate_opens_what_its_role_may(
    live: LiveLeague, tmp_path: Path, door: str, role: Role
) -> None:
    context = certified(live, tmp_path, role)
    for operation in DOORS[door]:
        status = tried(live, door, operation, context).status
        may = operation.public or role in MAY[operation.name]
        assert (status == 403) != may, f"{role} at {operation.name}: {status}"
        assert status not in (401, 500), f"{role} at {operation.name}: {status}"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("role", PEOPLE_ROLES)
def test_a_token_opens_what_its_role_may(
    live: LiveLeague, outside: ssl.SSLContext, door: str, role: Role
) -> None:
    token = ledger(live).create(role, "tester", 1)
    for operation in DOORS[door]:
        status = tried(live, door, operation, outside, token).status
        may = operation.public or (role in MAY[operation.name] and operation is not RENEW)
        if operation.name != "join_league":  # refuses what is no request with 422
            assert (status == 403) != may, f"{role} at {operation.name}: {status}"
        assert status not in (401, 500), f"{role} at {operation.name}: {status}"


def untrusted(live: LiveLeague, directory: Path) -> dict[str, str]:
    """Tokens that must not be believed."""
    authority = Authority.open(live.home.authority)
    stranger = Authority.create(directory / "stranger", live.league.name)
    good = ledger(live).create(Role.ADMIN, "good", 1)
    ended = ledger(live).create(Role.ADMIN, "ended", 1)
    ledger(live).revoke("ended")
    now = 1_700_000_000_000_000

    def signed(by: Authority, league: str, role: Role, expires: int) -> str:
        return token_text(AccessTokenClaims(league, role, "eve", "00", now, expires), by.sign)

    far = now + 10_000 * DAY
    return {
        "expired": signed(authority, live.league.name, Role.ADMIN, now + DAY),
        "revoked": ended,
        "tampered": good[:-8] + ("A" if good[-8] != "A" else "B") + good[-7:],
        "of another authority": signed(stranger, live.league.name, Role.ADMIN, far),
        "of another league": signed(authority, "elsewhere", Role.ADMIN, far),
        **{f"of a {role}": signed(authority, live.league.name, role, far) for role in MEMBERS},
        "nonsense": "x",
    }


@pytest.mark.parametrize("door", DOORS)
def test_who_is_not_believed_gets_nothing(
    live: LiveLeague, outside: ssl.SSLContext, tmp_path: Path, door: str
) -> None:
    admin = certified(live, tmp_path, Role.ADMIN)
    for what, token in {"nobody": "", **untrusted(live, tmp_path)}.items():
        for operation in DOORS[door]:
            if operation.public:
                continue
            said = tried(live, door, operation, outside, token)
            assert said.status == 401, f"{what} at {operation.name}: {said.status}"
            assert said.headers["www-authenticate"].startswith("Bearer")
            break_in = tried(live, door, operation, admin, token).status if token else 401
            assert break_in == 401, f"a good certificate excuses a bad token at {operation.name}"


def test_another_scheme_is_refused(live: LiveLeague, outside: ssl.SSLContext) -> None:
    said = ask(address(live, "broker"), outside, "GET", "/v1/league", headers={"Authorization": "Basic YTpi"})
    assert (said.status, said.code) == (401, "bad_token")


def test_what_is_public_is_so_for_nobody(live: LiveLeague, outside: ssl.SSLContext) -> None:
    for door in DOORS:
        assert tried(live, door, OPENAPI, outside).status == 200
