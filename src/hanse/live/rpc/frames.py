"""Frames: several envelopes as one block with four bytes of length before it.

A frame's content is a msgpack array of envelopes, decoded by one typed decoder: anything else than an
envelope with a known body is refused, and no other object is made from received data. Lengths are checked
before data is decoded or stored.
"""

from collections import deque
from typing import Final

import msgspec

from hanse.model.messages import Envelope

HEADER_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 16 << 20
"""Largest content of a frame. A larger envelope cannot be sent."""
ENVELOPES_MAX: Final = 4_096
"""Envelopes in one frame."""

FRAME_BYTES_TARGET: Final = 256 << 10
"""Size at which a frame is closed and sent, so that its receiver does not wait long."""
_ARRAY_HEAD: Final = 0xDD
_ARRAY_HEAD_BYTES: Final = 5

_encode_into: Final = msgspec.msgpack.Encoder().encode_into
_decoder: Final = msgspec.msgpack.Decoder(list[Envelope])


def pop_frame(outbox: deque[Envelope], limit: int = FRAME_BYTES_MAX) -> tuple[bytearray | None, int]:
    """Take one frame's envelopes from the head of an outbox; return the frame and their number.

    The frame is None, and one envelope is taken, if the first fits into no frame. The outbox is not empty.
    """
    frame = bytearray(HEADER_BYTES + _ARRAY_HEAD_BYTES)
    most = HEADER_BYTES + limit
    count = 0
    while outbox and count < ENVELOPES_MAX and len(frame) < FRAME_BYTES_TARGET:
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
    frame[HEADER_BYTES] = _ARRAY_HEAD
    frame[HEADER_BYTES + 1 : HEADER_BYTES + _ARRAY_HEAD_BYTES] = count.to_bytes(4, "big")
    return frame, count


def decode_frame(content: bytes | bytearray | memoryview) -> list[Envelope] | str:
    """Return the envelopes of a frame's content, or the reason of a refusal. No input raises."""
    count = _array_length(content)
    if count is None:
        return "undecodable"
    if count > ENVELOPES_MAX:
        return "crowded"
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # bad bytes raise all three
        return "undecodable"


def _array_length(content: bytes | bytearray | memoryview) -> int | None:
    """Return the length that the leading array states; None if there is no array."""
    first = content[0] if len(content) else 0
    if 0x90 <= first <= 0x9F:
        return first & 0x0F
    width = {0xDC: 2, 0xDD: 4}.get(first, 0)
    if not width or len(content) <= width:
        return None
    return int.from_bytes(content[1 : 1 + width], "big")
