"""A door: an ASGI application behind TLS, in the daemon's own event loop.

The HTTP parsing is uvicorn's protocol class; its server is not used, because that wakes ten times a second
for as long as it lives. Who is at the other end comes from the connection's certificate and is put into the
request's state as ``peer``.
"""

import asyncio
import ssl
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import identity_of
from hanse.live.league import Address

CONNECTIONS_MAX: Final = 1_000
"""Connections and requests under way; beyond it the answer is 503."""
KEEP_ALIVE_SECONDS: Final = 60
HANDSHAKE_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 2.0
"""How long requests under way may still take when the daemon stops."""


class PeerProtocol(HttpToolsProtocol):
    """One connection; knows whose certificate it showed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """The handshake is done."""
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, "peer": None if tls is None else identity_of(tls)}


class Door:
    """Listens until it is closed."""

    def __init__(self, application: ASGIApp, credentials: Credentials) -> None:
        self._config = uvicorn.Config(
            application,
            http=PeerProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._credentials = credentials
        self._context = credentials.server_context(require=False)
        self._server: asyncio.Server | None = None

    async def listen(self, address: Address) -> int:
        """Begin to listen; the real port."""
        loop = asyncio.get_running_loop()

        def connection() -> Any:
            return PeerProtocol(self._config, self._state, {}, loop)

        self._server = await loop.create_server(
            connection,
            address.host,
            address.port,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
        )
        port = self._server.sockets[0].getsockname()[1]
        assert isinstance(port, int)
        return port

    def reload(self) -> None:
        """Show the renewed certificate to whoever connects from now on."""
        self._context.load_cert_chain(self._credentials.path)

    async def close(self) -> None:
        """Take no new connections; give requests under way a moment."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = list(self._state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.close()
