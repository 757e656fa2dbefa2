"""A client for requests between members: one HTTPS request on the daemon's own event loop."""

import asyncio
import ssl
from typing import Final

from hanse.league.config import Address

ANSWER_BYTES_MAX: Final = 8 << 20
REQUEST_SECONDS_MAX: Final = 5.0
"""Seconds for the whole exchange, from the first packet to the last."""
CHUNK_BYTES: Final = 64 << 10


async def send_request(
    address: Address, context: ssl.SSLContext, verb: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    """Send a request and return the status and body of the answer; ``OSError``: there is none, and why.

    ``context`` decides which server is trusted: see ``Credentials.client_context``.
    """
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=address.host
            )
            try:
                head = f"{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                if body:
                    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode("ascii") + b"\r\n" + body)
                await writer.drain()
                data = await _read_to_end(reader)
            finally:
                writer.transport.abort()  # the answer is complete or useless: skip the TLS shutdown
    except TimeoutError:
        raise OSError("no answer in time") from None
    except UnicodeError as error:  # an invalid host name
        raise OSError(str(error)) from None
    return _parse_response(data)


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while chunk := await reader.read(CHUNK_BYTES):
        data += chunk
        if len(data) > ANSWER_BYTES_MAX:
            raise OSError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(data)


def _parse_response(data: bytes) -> tuple[int, bytes]:
    """Return status and body. Servers answer such requests with a length and close the connection."""
    head, separator, body = data.partition(b"\r\n\r\n")
    first, _, rest = head.partition(b"\r\n")
    words = first.split(b" ")
    lengths = [
        value.strip()
        for name, _, value in (line.partition(b":") for line in rest.split(b"\r\n"))
        if name.lower() == b"content-length"
    ]
    is_whole = lengths == [str(len(body)).encode("ascii")]
    if not separator or len(words) < 2 or not words[1].isdigit() or not is_whole:
        raise OSError("the connection closed before a complete answer")
    return int(words[1]), body
