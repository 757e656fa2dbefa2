"""Serialization of values: pickle protocol 5; large values go as files or in pieces.

Plain ``pickle`` comes first, because it is fast. ``cloudpickle`` is for values that ``pickle`` cannot handle,
and for everything from ``__main__``, which is another module on the other side.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hanse.sdk.errors import CannotTravelError
from hanse.sdk.shared_store import Spool, SpoolFile
from hanse.sdk.workers.worker_protocol import (
    LARGE_BYTES,
    PARCEL_BYTES_MAX,
    PIECE_BYTES,
    FrameError,
    Parcel,
    Piece,
)

PROTOCOL: Final = 5
MAIN: Final = b"__main__"
Buffer = bytes | memoryview


class Input:
    """Placeholder among the arguments of a call for a result that is in the shared store."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[type["Input"], tuple[int]]:
        return Input, (self.number,)


class OutOfBand:
    """Large bytes that pickle must not copy: they become a buffer beside the pickle, then bytes again."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __reduce_ex__(self, _: object) -> tuple[type[bytes], tuple[pickle.PickleBuffer]]:
        return bytes, (pickle.PickleBuffer(self.value),)


class Packed:
    """Pickled value, in memory or in a file of the shared store."""

    __slots__ = ("body", "buffers", "file", "size", "sizes")

    def __init__(self, body: Buffer, buffers: Sequence[Buffer] = ()) -> None:
        self.body = body
        self.buffers: Sequence[Buffer] = buffers
        self.file: SpoolFile | None = None
        self.sizes: tuple[int, ...] = ()
        self.size = len(body) + sum(map(len, buffers)) if buffers else len(body)

    @classmethod
    def stored(cls, file: SpoolFile, sizes: tuple[int, ...]) -> "Packed":
        """Make a value from a file."""
        packed = cls(b"")
        packed.file, packed.sizes, packed.size = file, sizes, sum(sizes)
        return packed

    def inline(self) -> Parcel:
        """Return a payload that goes inside a record."""
        return Parcel(bytes(self.body), tuple(map(bytes, self.buffers)) if self.buffers else ())

    def parts(self) -> list[Buffer]:
        """Return body and buffers, from memory or from the file."""
        if self.file is None:
            return [self.body, *self.buffers]
        return _cut(self.file.read(self.size), self.sizes)

    def spooled(self, spool: Spool) -> Parcel | None:
        """Return a payload that refers to a file, which is written if necessary; None if it cannot be."""
        if self.file is None:
            parts = self.parts()
            file = spool.write(parts)
            if file is None:
                return None
            self.sizes = tuple(map(len, parts))
            self.file, self.body, self.buffers = file, b"", ()
        return Parcel(b"", (), self.file.name, 0, self.sizes)

    def unspool(self) -> None:
        """Load the value into memory. If the file cannot be read, unpacking raises the error later."""
        try:
            body, *buffers = self.parts()
        except (OSError, FrameError):
            return
        self.body, self.buffers, self.file = body, buffers, None

    def pieces(self, stream: int) -> tuple[Iterator[Piece], Parcel]:
        """Return the pieces to send before the record, and the payload that refers to them."""
        parts = self.parts()
        return _pieces(parts, stream), Parcel(b"", (), "", stream, tuple(map(len, parts)))


NOTHING: Final = Packed(pickle.dumps(((), {}), PROTOCOL))
"""Arguments of a call without arguments."""


def _pieces(parts: list[Buffer], stream: int) -> Iterator[Piece]:
    for part in parts:
        view = memoryview(part)
        for first in range(0, len(view), PIECE_BYTES):
            yield Piece(stream, bytes(view[first : first + PIECE_BYTES]))


def pack(value: object, what: str) -> Packed:
    """Pickle a value. Raises ``SerializationError`` with the description ``what``."""
    if type(value) is bytes and len(value) > LARGE_BYTES:
        value = OutOfBand(value)
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, PROTOCOL, buffer_callback=buffers.append)
    except Exception:  # noqa: BLE001  a user's class may raise anything; cloudpickle decides
        return cloud_packed(value, what)
    if MAIN in body:
        return cloud_packed(value, what)
    return Packed(body, _flat(buffers)) if buffers else Packed(body)


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Packed:
    """Pickle the arguments of a call. The caller may change them afterwards."""
    if not args and not kwargs:
        return NOTHING
    for argument in args:
        if type(argument) is bytes and len(argument) > LARGE_BYTES:
            args = tuple(
                OutOfBand(one) if type(one) is bytes and len(one) > LARGE_BYTES else one for one in args
            )
            break
    return owned(pack((args, kwargs), "the arguments"))


def cloud_packed(value: object, what: str) -> Packed:
    """Pickle a value with cloudpickle, which handles functions and classes without an importable name."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415  slow to import

        body = cloudpickle.dumps(value, PROTOCOL, buffer_callback=buffers.append)
    except Exception as error:
        raise CannotTravelError(f"{what} cannot be pickled: {type(error).__name__}: {error}") from error
    return Packed(body, _flat(buffers))


def _flat(buffers: list[pickle.PickleBuffer]) -> list[memoryview]:
    return [buffer.raw() for buffer in buffers]


def owned(packed: Packed) -> Packed:
    """Copy the buffers of a value, because the caller may change the objects they belong to."""
    if packed.buffers:
        packed.buffers = tuple(map(_kept, packed.buffers))
    return packed


def _kept(buffer: Buffer) -> Buffer:
    """Return a buffer that cannot change: itself if it covers a bytes object, else a copy."""
    if isinstance(buffer, memoryview) and type(buffer.obj) is bytes and len(buffer.obj) == buffer.nbytes:
        return buffer
    return bytes(buffer)


def unpack(parts: Sequence[Buffer]) -> Any:
    """Unpickle a value. Raises anything that its classes raise."""
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301  the sender has proved its key


class Assembly:
    """Assembler of streams from their pieces; both sides use it."""

    def __init__(self) -> None:
        self._streams: dict[int, bytearray] = {}
        self._bytes = 0

    def add(self, piece: Piece) -> None:
        """Append the next piece. Raises ``FrameError`` if there are too many bytes."""
        self._bytes += len(piece.data)
        if self._bytes > PARCEL_BYTES_MAX:
            raise FrameError(f"more than {PARCEL_BYTES_MAX} bytes of payloads")
        self._streams.setdefault(piece.stream, bytearray()).extend(piece.data)

    def parts(self, parcel: Parcel, read: Callable[[str, int], bytearray]) -> Sequence[Buffer]:
        """Return body and buffers of a received payload. ``read``: reads a file of the shared store."""
        if parcel.stream:
            data = self._streams.pop(parcel.stream, bytearray())
            self._bytes -= len(data)
            return _cut(data, parcel.sizes)
        if parcel.file:
            return _cut(read(parcel.file, sum(parcel.sizes)), parcel.sizes)
        return (parcel.body, *parcel.buffers)


def _cut(data: bytearray, sizes: Sequence[int]) -> list[Buffer]:
    """Split data into consecutive parts. Raises ``FrameError`` if the sizes do not match."""
    if len(data) != sum(sizes) or not sizes:
        raise FrameError(f"{len(data)} bytes came of a payload of {sum(sizes)}")
    view = memoryview(data)
    parts: list[Buffer] = []
    first = 0
    for size in sizes:
        parts.append(view[first : first + size])
        first += size
    return parts


def is_large(packed: Packed) -> bool:
    """Return True if the value must not go inside a record."""
    return packed.size > LARGE_BYTES or packed.file is not None
