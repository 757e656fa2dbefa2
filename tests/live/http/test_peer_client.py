"""One member asks another one's door: whole answers only, from whom it should be, in time."""

import asyncio
from pathlib import Path

import pytest

from hanse.league.config import Address
from hanse.live.http import peer_client
from hanse.live.http.peer_client import send_request
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from hanse.security.private_keys import certificate_request, new_key

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture
def members(tmp_path: Path) -> dict[str, Credentials]:
    """Two brokers of one league."""
    authority = Authority.create(tmp_path / "authority", "local")
    found = {}
    for name in ("b1", "b2"):
        key = new_key()
        certificate = authority.issue(Identity("local", Role.BROKER, name), certificate_request(key))
        assert isinstance(certificate, str)
        found[name] = Credentials(tmp_path / name)
        found[name].store(key, certificate, authority.certificate)
    return found


def asked_of(
    members: dict[str, Credentials], answer: bytes | None, expected: str = "b2"
) -> tuple[int, bytes]:
    """What b1 hears from b2, which says this; None: it says nothing, and does not hang up."""

    async def both() -> tuple[int, bytes]:
        asked_for: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                asked_for.append(await reader.readuntil(b"\r\n\r\n"))
                if answer is None:
                    await reader.read()
                else:
                    writer.write(answer)
                    await writer.drain()
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.transport.abort() if answer is None else writer.close()

        server = await asyncio.start_server(serve, "localhost", 0, ssl=members["b2"].server_context())
        async with server:
            port = server.sockets[0].getsockname()[1]
            context = members["b1"].client_context(Identity("local", Role.BROKER, expected))
            said = await send_request(Address("localhost", port), context, "GET", "/v1/league")
        assert asked_for[0].startswith(b"GET /v1/league HTTP/1.1\r\n")
        return said

    return asyncio.run(both())


def test_an_answer_is_status_and_body(members: dict[str, Credentials]) -> None:
    assert asked_of(members, WHOLE) == (200, b"{}")
    assert asked_of(members, WHOLE.replace(b"200 OK", b"503 Later")) == (503, b"{}")


@pytest.mark.parametrize(
    "part", [b"", WHOLE[:10], WHOLE[:-1], WHOLE + b"x", b"nonsense\r\n\r\n", WHOLE.replace(b"200", b"2x0")]
)
def test_half_an_answer_is_none(members: dict[str, Credentials], part: bytes) -> None:
    with pytest.raises(OSError, match="connection closed"):
        asked_of(members, part)


def test_an_answer_without_end_is_cut_off(
    members: dict[str, Credentials], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_client, "ANSWER_BYTES_MAX", 1_000)
    with pytest.raises(OSError, match="longer than 1000 bytes"):
        asked_of(members, b"x" * 2_000)


def test_silence_ends_in_time(members: dict[str, Credentials], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_client, "REQUEST_SECONDS_MAX", 0.2)
    with pytest.raises(OSError, match="no answer in time"):
        asked_of(members, None)


def test_somebody_else_is_told_nothing(members: dict[str, Credentials]) -> None:
    with pytest.raises(OSError, match="expected broker b3 of local"):
        asked_of(members, WHOLE, expected="b3")
