"""Frames: several envelopes in one piece, four bytes of length before it.

A frame's content is a msgpack array of envelopes, decoded by one typed decoder: what is not exactly an
envelope with a known body is refused, and nothing else is ever constructed from what arrives. Lengths are
looked at before anything is decoded or stored.
"""

from collections import deque
from typing import Final

import msgspec

from hanse.model.messages import Envelope

HEADER_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 16 << 20
"""The largest content of a frame. An envelope that does not fit cannot be sent."""
ENVELOPES_MAX: Final = 4_096
"""Envelopes in one frame."""

FRAME_BYTES_USUAL: Final = 256 << 10
"""A frame that has reached this size is closed and sent, so that nobody waits for a long one to arrive."""
_ARRAY: Final = 0xDD
_ARRAY_BYTES: Final = 5

_encode_into: Final = msgspec.msgpack.Encoder().encode_into
_decoder: Final = msgspec.msgpack.Decoder(list[Envelope])


def take_frame(outbox: deque[Envelope], limit: int = FRAME_BYTES_MAX) -> tuple[bytearray | None, int]:
    """Take as many envelopes as make one frame off the head of an outbox; the frame, and how many they were.

    No frame, and one envelope taken, if the first does not fit into any. The outbox is not empty.
    """
    frame = bytearray(HEADER_BYTES + _ARRAY_BYTES)
    most = HEADER_BYTES + limit
    count = 0
    while outbox and count < ENVELOPES_MAX and len(frame) < FRAME_BYTES_USUAL:
        before = len(frame)
        _encode_into(outbox[0], frame, -1)
        if len(frame) > most:
            del frame[before:]
            if not count:
                outbox.popleft()
                return None, 1
            break
        outbox.popleft()
        count += 1
    frame[:HEADER_BYTES] = (len(frame) - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
    frame[HEADER_BYTES] = _ARRAY
    frame[HEADER_BYTES + 1 : HEADER_BYTES + _ARRAY_BYTES] = count.to_bytes(4, "big")
    return frame, count


def decode(content: bytes | bytearray | memoryview) -> list[Envelope] | str:
    """The envelopes of a frame's content, or the reason why they are refused. No input raises."""
    count = _count(content)
    if count is None:
        return "undecodable"
    if count > ENVELOPES_MAX:
        return "crowded"
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # it raises all three on bad bytes
        return "undecodable"


def _count(content: bytes | bytearray | memoryview) -> int | None:
    """How many items the array at the beginning says it has; None if there is none."""
    first = content[0] if len(content) else 0
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    if not width or len(content) <= width:
        return None
    return int.from_bytes(content[1 : 1 + width], "big")
