"""Policy process: holds a learned model, and answers its broker's questions one at a time.

It is a separate process so that a model can neither slow its broker down nor crash it. ``python -m
hanse.live.policy_process.process MODEL FD`` uses the socket with that number, and ends when the other end is
closed. It has no state: it can be killed at any time and restarted. A frame is four bytes of length and
MessagePack.
"""

import socket
import struct
import sys
from contextlib import suppress
from typing import Final

import msgspec

from hanse.live.policy_process.models import load_model
from hanse.model.advice import Advice
from hanse.model.effects import RequestAdvice

FRAME_BYTES_MAX: Final = 1 << 20
"""Longest question or answer."""
FRAME_HEADER: Final = struct.Struct(">I")
"""Length of the content that follows."""


class AdviceReply(msgspec.Struct, frozen=True, array_like=True):
    """Answer to one question."""

    number: int
    choices: tuple[Advice, ...]


encode: Final = msgspec.msgpack.Encoder().encode
decode_question: Final = msgspec.msgpack.Decoder(RequestAdvice).decode
decode_answer: Final = msgspec.msgpack.Decoder(AdviceReply).decode


def encode_frame(message: RequestAdvice | AdviceReply) -> bytes:
    """Return the frame of a message; empty if it is too long."""
    content = encode(message)
    return FRAME_HEADER.pack(len(content)) + content if len(content) <= FRAME_BYTES_MAX else b""


def serve(connection: socket.socket, name: str) -> None:
    """Answer questions with the model of this name until the connection ends."""
    model = load_model(name)
    if isinstance(model, str):
        sys.exit(model)
    with suppress(ConnectionError):  # the broker may end at any time
        while (content := _receive_frame(connection)) is not None:
            question = decode_question(content)
            connection.sendall(encode_frame(AdviceReply(question.number, model.advise(question.request))))


def _receive_frame(connection: socket.socket) -> bytes | None:
    """Return the content of the next frame; None at the end of the connection."""
    head = _receive_exactly(connection, FRAME_HEADER.size)
    return _receive_exactly(connection, FRAME_HEADER.unpack(head)[0]) if head is not None else None


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = connection.recv(count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[2])) as given:
        serve(given, sys.argv[1])
