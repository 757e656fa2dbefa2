"""A machine with the authority's certificate and an access token, and nothing else, uses a real league."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hanse
from hanse.client.contexts import load
from hanse.client.exit_codes import ExitCode
from hanse.sdk.errors import NotAllowedError
from hanse.security.access_token_issuer import AccessTokenIssuer
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from hanse.security.revocation_list import DAY
from hanse.security.wall_time import wall_now
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.sdk_league import LEAGUE

SECONDS_MAX = 120.0


class Machine:
    """A machine with a file of contexts, the authority's certificate and tokens; no certificate."""

    def __init__(self, live: LiveLeague, folder: Path) -> None:
        self.live = live
        self.folder = folder
        self.ca = folder / "ca.pem"
        folder.mkdir()
        shutil.copy(live.credentials.authority_path, self.ca)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
        self.env = {**kept, "HANSE_CONFIG": str(folder / "config.json")}

    def ledger(self, late: int = 0) -> AccessTokenIssuer:
        """Where tokens are made; ``late``: microseconds by which its clock is behind."""
        home = self.live.home
        return AccessTokenIssuer(home, Authority.open(home.authority), lambda: wall_now() - late)

    def token(self, role: Role, name: str, late: int = 0) -> Path:
        """A file with a new token."""
        path = self.folder / f"{name}.token"
        path.touch(0o600)
        path.write_text(self.ledger(late).create(role, name, 1))
        return path

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "hanse", *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == ExitCode.OK, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def meet(self, token: Path) -> str:
        """Make the context 'far' with this token."""
        door = str(self.live.league.brokers[0].door)
        return self.ok(
            *("config", "set", "far", "--broker", door, "--ca", str(self.ca), "--token-file", str(token))
        )


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with (
        open_directory() as directory,
        pytest.MonkeyPatch.context() as patch,
        running(directory / "home", LEAGUE) as live,
    ):
        found = Machine(live, directory / "machine")
        patch.setenv("HANSE_CONFIG", found.env["HANSE_CONFIG"])
        for name in ("HANSE_CONTEXT", "HANSE_TOKEN", "HANSE_TENANT"):
            patch.delenv(name, raising=False)
        yield found


def test_the_commands_do_with_a_token_alone(machine: Machine) -> None:
    token = machine.token(Role.SUBMITTER, "ci")
    told = machine.meet(token)
    job = machine.ok("submit", "--quiet", "--", "sh", "-c", "echo out; sleep 0.1").strip()
    assert re.fullmatch(r"1-\d+|2-\d+", job), job
    machine.ok("wait", job)
    assert machine.ok("logs", job) == "out\n"
    long = machine.ok("submit", "--quiet", "--", "sleep", "600").strip()
    machine.ok("cancel", long)
    assert machine.run("wait", long).returncode == ExitCode.JOB_CANCELLED
    assert long in machine.ok("jobs", "--all")
    text = token.read_text()
    for path in (machine.folder / "config.json", *machine.folder.glob("authorities/*/*")):
        assert text not in path.read_text()
    assert text not in told
    assert not list(machine.folder.rglob("identity.pem"))


def test_programs_do_with_a_token_alone(machine: Machine) -> None:
    machine.meet(machine.token(Role.SUBMITTER, "program"))
    with hanse.Client() as client:
        job = client.run("echo hello")
        assert job.result(SECONDS_MAX) == "hello\n"
        assert client.submit(pow, 2, 10, resources={"memory": "64MiB"}).result(SECONDS_MAX) == 1024
        future = client.submit(print, "by hand")
        assert future.result(SECONDS_MAX) is None
        assert "The call ended" in future.why()
        assert "by hand" in future.logs()
    with hanse.Executor(max_workers=1) as executor:
        assert list(executor.map(abs, [-1, -2])) == [1, 2]

    async def both() -> str:
        async with hanse.AsyncClient() as client:
            started = await client.run("echo later")
            return await started.result()

    assert asyncio.run(both()) == "later\n"


def test_a_token_in_the_program_or_the_environment_goes_before_the_file(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.meet(machine.token(Role.VIEWER, "onlooker"))
    able = machine.token(Role.SUBMITTER, "able").read_text()
    with hanse.Client(token=able) as client:
        assert client.run("echo mine").result(SECONDS_MAX) == "mine\n"
        assert client.submit(pow, 2, 3).result(SECONDS_MAX) == 8
    monkeypatch.setenv("HANSE_TOKEN", able)
    with hanse.Client() as client:
        assert client.run("echo ours").result(SECONDS_MAX) == "ours\n"
    with pytest.raises(hanse.SdkError, match="'token' holds no access token"):
        hanse.Client(token="hanse-join-1-x")


def test_a_viewer_is_refused_with_the_documented_error(machine: Machine) -> None:
    machine.meet(machine.token(Role.VIEWER, "watcher"))
    machine.ok("jobs")
    refused = machine.run("submit", "--", "true")
    assert refused.returncode == ExitCode.FORBIDDEN
    assert "a viewer may not do this" in refused.stderr
    assert "submitter, operator, admin" in refused.stderr
    with hanse.Client() as client:
        assert isinstance(client.jobs(), list)
        with pytest.raises(NotAllowedError, match="a viewer may not do this"):
            client.run("true")
        with pytest.raises(hanse.NoWorkersError, match="a viewer may not do this"):
            client.submit(pow, 1, 1).result(SECONDS_MAX)


def test_an_expired_and_a_revoked_token_say_what_to_do(machine: Machine) -> None:
    machine.meet(machine.token(Role.SUBMITTER, "gone"))
    old = machine.token(Role.SUBMITTER, "old", late=2 * DAY)
    machine.ok("config", "set", "far", "--token-file", str(old))
    expired = machine.run("jobs")
    assert expired.returncode == ExitCode.FORBIDDEN
    assert "has expired" in expired.stderr
    assert "hanse access create" in expired.stderr
    assert str(old) in expired.stderr
    assert old.read_text() not in expired.stderr
    machine.ok("config", "set", "far", "--token-file", str(machine.folder / "gone.token"))
    assert machine.ledger().revoke("gone")
    with hanse.Client() as client, pytest.raises(NotAllowedError, match="was revoked"):
        client.jobs()


def test_only_the_leagues_own_members_get_to_see_the_token(machine: Machine, tmp_path: Path) -> None:
    token = machine.token(Role.SUBMITTER, "careful")
    machine.meet(token)
    directory = Path(load().contexts["far"].credentials)
    authority = (directory / "ca.pem").read_text()
    (directory / "ca.pem").write_text(Authority.create(tmp_path / "other", "other").certificate)
    try:
        done = machine.run("jobs")
    finally:
        (directory / "ca.pem").write_text(authority)
    assert done.returncode == ExitCode.UNAVAILABLE
    assert "its certificate is not accepted" in done.stderr
    machine.ok("jobs")
