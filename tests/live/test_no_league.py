"""Programs whose league is not there: they are told so, and soon; nothing hangs."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import hanse
from hanse.client.contexts import Context, save_context
from hanse.sdk.workers import provisioner
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from hanse.security.private_keys import certificate_request, new_key

SECONDS_MAX = 0.5 * provisioner.LEAGUE_SECONDS_MAX
"""Less than what a league that was there is waited for."""


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    for name in ("HANSE_CONTEXT", "HANSE_TOKEN", "HANSE_TENANT"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def listening() -> Iterator[str]:
    """An address at which connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


def a_free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        return f"127.0.0.1:{gone.getsockname()[1]}"


def know(folder: Path, address: str) -> None:
    """Make a league at this address the current context."""
    authority = Authority.create(folder / "authority", "gone")
    key = new_key()
    certificate = authority.issue(Identity("gone", Role.ADMIN, "admin"), certificate_request(key))
    assert isinstance(certificate, str)
    Credentials(folder / "admin").store(key, certificate, authority.certificate)
    save_context("gone", Context("gone", "", str(folder / "admin"), {"b1": address}), make_current=True)


@pytest.mark.parametrize("make", [hanse.Executor, hanse.Client, hanse.AsyncClient])
def test_without_any_league_nothing_is_made(make: type) -> None:
    with pytest.raises(hanse.SdkError, match=r"no league is running here.*hanse up"):
        make()


@pytest.mark.parametrize("make", [hanse.Executor, hanse.Client, hanse.AsyncClient])
def test_a_context_that_is_not_there_is_told(tmp_path: Path, make: type) -> None:
    know(tmp_path, a_free_address())
    with pytest.raises(hanse.SdkError, match="no context 'other'"):
        make(context="other")


def test_calls_to_a_league_that_is_gone_fail_soon(tmp_path: Path) -> None:
    know(tmp_path, a_free_address())
    with (
        hanse.Executor(max_workers=1) as executor,
        pytest.raises(hanse.NoWorkersError, match="nobody listens there"),
    ):
        executor.submit(abs, -1).result(SECONDS_MAX)
    with hanse.Client() as client:
        with pytest.raises(hanse.SdkError, match="no broker of the league 'gone' answers"):
            client.run("true")
        with pytest.raises(hanse.NoWorkersError, match="nobody listens there"):
            client.submit(abs, -1).result(SECONDS_MAX)
        with pytest.raises(hanse.NoWorkersError):
            list(client.map(abs, [1, 2], timeout=SECONDS_MAX))


def test_a_broker_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with listening() as address:
        know(tmp_path, address)
        with (
            hanse.Executor(max_workers=1) as executor,
            pytest.raises(hanse.NoWorkersError, match="no answer in time"),
        ):
            executor.submit(abs, -1).result(SECONDS_MAX)


def test_asyncio_is_told_too(tmp_path: Path) -> None:
    know(tmp_path, a_free_address())

    async def both() -> None:
        async with hanse.AsyncClient() as client:
            with pytest.raises(hanse.SdkError, match="no broker of the league 'gone' answers"):
                await client.run("true")
            with pytest.raises(hanse.NoWorkersError, match="nobody listens there"):
                await asyncio.wait_for(client.submit(abs, -1), SECONDS_MAX)

    asyncio.run(both())


def test_an_executor_without_calls_ends_at_once(tmp_path: Path) -> None:
    know(tmp_path, a_free_address())
    executor = hanse.Executor()
    executor.shutdown()
    assert not executor._dispatcher.is_alive()
    assert not executor._provisioner.is_alive()
