"""What an executor and its hands say to each other: records in msgpack, each behind its length.

Pickled bytes are opaque here: this module unpickles nothing. A frame is four bytes of length (big endian) and
one record. Large parcels do not travel inside records but beside them, as a file that both ends see or as
``Piece`` records that come before the record that refers to them.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

FRAME_BYTES_MAX: Final = 1 << 20
"""The longest frame; whoever sends a longer one is cut off."""
HELLO_BYTES_MAX: Final = 8 << 10
"""The longest frame before both sides have proved that they know the key."""
BATCH_BYTES: Final = 256 << 10
"""A frame of calls or results is closed when it holds about this much."""
BATCH_ITEMS_MAX: Final = 512
LARGE_BYTES: Final = 256 << 10
"""A parcel that is larger travels beside the record: as a file, or in pieces."""
PIECE_BYTES: Final = 256 << 10
PARCEL_BYTES_MAX: Final = 16 << 30
"""The largest parcel that is put together; a longer one breaks the connection."""
NONCE_BYTES: Final = 32

VALUE: Final = 0
"""Status of an outcome: the function returned."""
RAISED: Final = 1
"""It raised; the parcel holds the exception and the traceback's text."""
BROKEN: Final = 2
"""It could not be called, or what it gave cannot be pickled; the parcel holds sentences."""
UNKNOWN: Final = 3
"""The function is not there by its name; the parcel holds why. It may be sent by value instead."""


class Parcel(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """Pickled data: inline, or where it is."""

    body: bytes
    """The pickle; empty if it is elsewhere."""
    buffers: tuple[bytes, ...] = ()
    """What the pickle refers to out of band."""
    file: str = ""
    """Name of the file in the spool that holds body and buffers, one behind the other."""
    stream: int = 0
    """Number of the stream whose pieces hold them."""
    sizes: tuple[int, ...] = ()
    """With ``file`` or ``stream``: the bytes of the body and of each buffer."""


class Challenge(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The executor's first word."""

    nonce: bytes


class Hello(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A hand says who it is, and proves that it knows the key of that attempt."""

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
    def who(self) -> tuple[str, int, int]:
        """Which attempt it says it is: job, index, attempt."""
        return self.job, self.index, self.attempt


class Welcome(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """The executor proves it too, and says what a hand needs to know."""

    proof: bytes
    spool: str
    """Directory for large parcels; empty: there is none."""
    token: str
    """A file in it, and what stands in that file: whoever reads this sees the same directory."""
    paths: tuple[str, ...]
    """Directories from which the executor's own Python imports; the hand looks there last."""


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """The hand takes calls from now on."""

    spooled: bool
    """Whether it sees the spool and can write there."""


class Function(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """A function that calls refer to by number."""

    number: int
    name: str
    """``module:qualified.name``; empty: it is in the parcel."""
    parcel: Parcel


class CallRecord(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """One call: its number, that of the function, and the pickled arguments."""

    number: int
    function: int
    parcel: Parcel
    inputs: tuple[tuple[int, Parcel], ...] = ()
    """Results of other calls that are put in for arguments: their number, and where each is."""


class Calls(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Calls for a hand, which takes them in this order."""

    calls: tuple[CallRecord, ...]


class Outcome(msgspec.Struct, array_like=True, frozen=True, eq=False):
    """How one call ended."""

    number: int
    status: int
    parcel: Parcel


class Results(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Calls that have ended, in the order in which they were made."""

    outcomes: tuple[Outcome, ...]
    busy: int
    """Nanoseconds that the functions took, all together."""


class Recall(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Give calls back that have not begun: these, and this many of the last ones."""

    numbers: tuple[int, ...] = ()
    count: int = 0


class Returned(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Calls that had not begun, and will not begin here."""

    numbers: tuple[int, ...]


class Piece(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """The next bytes of a large parcel."""

    stream: int
    data: bytes


class Bye(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """No further calls: the hand may end."""


Message = Challenge | Hello | Welcome | Ready | Function | Calls | Results | Recall | Returned | Piece | Bye
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


class FrameError(Exception):
    """The other side does not keep the protocol."""


def frame(message: Message) -> bytes:
    """A record as it travels."""
    buffer = bytearray(4)
    _encoder.encode_into(message, buffer, 4)
    size = len(buffer) - 4
    assert size <= FRAME_BYTES_MAX, f"a frame of {size} bytes"
    buffer[:4] = size.to_bytes(4, "big")
    return bytes(buffer)


class Splitter:
    """Cuts what arrives into records."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        """The longest frame that is taken."""
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The records that are whole now. Raises ``FrameError``; then the connection is of no use."""
        rest = self._rest
        rest += data
        while len(rest) >= 4:
            size = int.from_bytes(rest[:4], "big")
            if size > self.bytes_max:
                raise FrameError(f"a frame of {size} bytes, and at most {self.bytes_max} are taken")
            if len(rest) < 4 + size:
                return
            with memoryview(rest) as view:
                try:
                    message = _decoder.decode(view[4 : 4 + size])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise FrameError(f"a frame that is no record: {error}") from None
            del rest[: 4 + size]
            yield message
