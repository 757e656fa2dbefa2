"""One member asks another one's door: a single HTTPS request on the daemon's own event loop."""

import asyncio
import ssl
from typing import Final

from hanse.live.config.league import Address

ANSWER_BYTES_MAX: Final = 8 << 20
ASK_SECONDS_MAX: Final = 5.0
"""For everything, from the first packet to the last."""
CHUNK_BYTES: Final = 64 << 10


async def asked(
    address: Address, context: ssl.SSLContext, verb: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    """The status and the body of an answer; ``OSError`` says why there is none.

    ``context`` decides whom to believe: see ``Credentials.client_context``.
    """
    try:
        async with asyncio.timeout(ASK_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=address.host
            )
            try:
                head = f"{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                if body:
                    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                writer.write(head.encode("ascii") + b"\r\n" + body)
                await writer.drain()
                data = await _until_end(reader)
            finally:
                writer.transport.abort()  # the answer is whole, or of no use: nobody waits for a farewell
    except TimeoutError:
        raise OSError("no answer in time") from None
    except UnicodeError as error:  # an impossible host name
        raise OSError(str(error)) from None
    return _parsed(data)


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while chunk := await reader.read(CHUNK_BYTES):
        data += chunk
        if len(data) > ANSWER_BYTES_MAX:
            raise OSError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(data)


def _parsed(data: bytes) -> tuple[int, bytes]:
    """Doors answer such requests with a length, and close the connection behind the answer."""
    head, mark, body = data.partition(b"\r\n\r\n")
    first, _, rest = head.partition(b"\r\n")
    words = first.split(b" ")
    lengths = [
        value.strip()
        for name, _, value in (line.partition(b":") for line in rest.split(b"\r\n"))
        if name.lower() == b"content-length"
    ]
    whole = lengths == [str(len(body)).encode("ascii")]
    if not mark or len(words) < 2 or not words[1].isdigit() or not whole:
        raise OSError("it hung up")
    return int(words[1]), body
