"""Protocol between an executor and its workers: msgpack records, each after its length.

Pickled bytes are opaque here: this module unpickles nothing. A frame is four bytes of length (big endian) and
one record. Large payloads are not part of records: they are a file that both sides see, or ``PayloadPiece``
records that precede the record that refers to them.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

FRAME_BYTES_MAX: Final = 1 << 20
"""Longest frame; a longer one ends the connection."""
HELLO_BYTES_MAX: Final = 8 << 10
"""Longest frame before both sides have proved that they know the key."""
BATCH_BYTES: Final = 256 << 10
"""Approximate size of a full frame of calls or results."""
BATCH_ITEMS_MAX: Final = 512
LARGE_BYTES: Final = 256 << 10
"""Size above which a payload is sent outside the record: as a file, or in pieces."""
PIECE_BYTES: Final = 256 << 10
PAYLOAD_BYTES_MAX: Final = 16 << 30
"""Largest payload that is assembled; a longer one breaks the connection."""
NONCE_BYTES: Final = 32

VALUE: Final = 0
"""Status of an outcome: the function returned."""
RAISED: Final = 1
"""Status: the function raised; the payload holds the exception and the traceback's text."""
BROKEN: Final = 2
"""Status: the call failed, or its result cannot be pickled; the payload holds sentences."""
FUNCTION_NOT_FOUND: Final = 3
"""Status: no function of that name; the payload holds the reason. It may be sent by value instead."""


class Payload(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """Pickled data, inline or as a reference."""

    body: bytes
    """Pickle; empty if it is elsewhere."""
    buffers: tuple[bytes, ...] = ()
    """Out-of-band buffers of the pickle."""
    file: str = ""
    """Name of the file in the shared store that holds body and buffers, one after the other."""
    stream: int = 0
    """Number of the stream of pieces that holds them."""
    sizes: tuple[int, ...] = ()
    """With ``file`` or ``stream``: the bytes of the body and of each buffer."""


class Challenge(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """First message of the executor."""

    nonce: bytes


class Hello(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Identity of a worker, with the proof that it knows the key of that attempt."""

    nonce: bytes
    proof: bytes
    job: str
    index: int
    attempt: int
    cluster: str
    node: str
    pid: int
    python: str
    """Version of the interpreter."""

    @property
    def attempt_id(self) -> tuple[str, int, int]:
        """Attempt that the worker claims to be: job, index, attempt."""
        return self.job, self.index, self.attempt


class Welcome(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Proof of the executor, and the settings of a worker."""

    proof: bytes
    store: str
    """Directory of the shared store; empty: there is none."""
    token: str
    """Content of a file in the store: a worker that reads the same text sees the same directory."""
    import_paths: tuple[str, ...]
    """Directories from which the executor's Python imports; the worker searches them last."""


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Message of a worker that takes calls from now on."""

    sees_store: bool
    """True if it sees the shared store and can write there."""


class FunctionRecord(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Function that calls refer to by number."""

    number: int
    name: str
    """``module:qualified.name``; empty: the function is in the payload."""
    payload: Payload


class CallRecord(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """Call: its number, that of the function, and the pickled arguments."""

    number: int
    function: int
    payload: Payload
    inputs: tuple[tuple[int, Payload], ...] = ()
    """Results of other calls to put in for arguments: their numbers and payloads."""


class Calls(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Calls for a worker, which makes them in this order."""

    calls: tuple[CallRecord, ...]


class CallOutcome(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """Outcome of one call."""

    number: int
    status: int
    payload: Payload


class Results(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Outcomes of calls, in the order of execution."""

    outcomes: tuple[CallOutcome, ...]
    busy_ns: int
    """Nanoseconds that the functions took, all together."""


class Recall(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Request to give calls back that have not begun: these, and this many of the last ones."""

    numbers: tuple[int, ...] = ()
    count: int = 0


class ReturnedCalls(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Calls that had not begun and will not begin here."""

    numbers: tuple[int, ...]


class PayloadPiece(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """Next bytes of a large payload."""

    stream: int
    data: bytes


class Bye(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """Release of the worker: no further calls."""


Message = (
    Challenge
    | Hello
    | Welcome
    | Ready
    | FunctionRecord
    | Calls
    | Results
    | Recall
    | ReturnedCalls
    | PayloadPiece
    | Bye
)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


class FrameError(Exception):
    """Violation of the protocol by the other side."""


def encode_frame(message: Message) -> bytes:
    """Encode a record as a frame."""
    buffer = bytearray(4)
    _encoder.encode_into(message, buffer, 4)
    size = len(buffer) - 4
    assert size <= FRAME_BYTES_MAX, f"a frame of {size} bytes"
    buffer[:4] = size.to_bytes(4, "big")
    return bytes(buffer)


class FrameDecoder:
    """Decoder of a byte stream into records."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """Longest frame that is accepted."""
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the records that are complete now. Raises ``FrameError``; the connection is unusable then."""
        rest = self._rest
        rest += data
        while len(rest) >= 4:
            size = int.from_bytes(rest[:4], "big")
            if size > self.bytes_max:
                raise FrameError(f"a frame of {size} bytes; at most {self.bytes_max} are allowed")
            if len(rest) < 4 + size:
                return
            with memoryview(rest) as view:
                try:
                    message = _decoder.decode(view[4 : 4 + size])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise FrameError(f"a frame that holds no record: {error}") from None
            del rest[: 4 + size]
            yield message
