"""Policy process: holds the trained network, and answers its broker's questions one at a time.

It is a separate process so that a network can neither slow its broker down nor crash it. ``python -m
hanse.live.policy_process.process FD`` uses the socket with that number, and ends when the other end is
closed. It has no state: it can be killed at any time and restarted. A frame is four bytes of length and
MessagePack.
"""

import socket
import struct
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from hanse.model.advice import Advice
from hanse.model.effects import RequestAdvice
from hanse.policy.edge.advice import advise
from hanse.policy.edge.network import EdgeNetwork, from_arrays

NETWORK_FILE: Final = "edge-2.npz"
"""Network that comes with the package."""
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


def load_network(path: Path) -> EdgeNetwork | str:
    """Return the network of a file, or a sentence saying why it cannot be used."""
    with np.load(path, allow_pickle=False) as kept:
        about = bytes(kept["about"])
        arrays = {name: kept[name] for name in kept.files if name != "about"}
    loaded = from_arrays(arrays, about)
    return f"{path.name} cannot be used: {loaded}" if isinstance(loaded, str) else loaded[0]


def serve(connection: socket.socket) -> None:
    """Answer questions until the connection ends."""
    network = load_network(Path(str(files("hanse.policy.edge").joinpath(NETWORK_FILE))))
    if isinstance(network, str):
        sys.exit(network)
    with suppress(ConnectionError):  # the broker may end at any time
        while (content := _receive_frame(connection)) is not None:
            question = decode_question(content)
            connection.sendall(encode_frame(AdviceReply(question.number, advise(network, question.request))))


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
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
