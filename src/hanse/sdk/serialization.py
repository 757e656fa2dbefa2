"""Serialization of values: pickle protocol 5; large values go as files or in pieces.

Plain ``pickle`` comes first, because it is fast. ``cloudpickle`` is for values that ``pickle`` cannot handle,
and for everything from ``__main__``, which is another module on the other side.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hanse.sdk.errors import SerializationError
from hanse.sdk.shared_store import SharedStore, StoreFile
from hanse.sdk.workers.worker_protocol import (
    LARGE_BYTES,
    PAYLOAD_BYTES_MAX,
    PIECE_BYTES,
    FrameError,
    Payload,
    PayloadPiece,
)

PICKLE_PROTOCOL: Final = 5
MAIN_MODULE: Final = b"__main__"
Buffer = bytes | memoryview


class Input:
    """Placeholder among the arguments of a call for a result that is in the shared store."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[type["Input"], tuple[int]]:
        return Input, (self.number,)


class OutOfBandBytes:
    """Large bytes that pickle must not copy: they become a buffer beside the pickle, then bytes again."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __reduce_ex__(self, _: object) -> tuple[type[bytes], tuple[pickle.PickleBuffer]]:
        return bytes, (pickle.PickleBuffer(self.value),)


class PickledValue:
    """Pickled value, in memory or in a file of the shared store."""

    __slots__ = ("body", "buffers", "file", "size", "sizes")

    def __init__(self, body: Buffer, buffers: Sequence[Buffer] = ()) -> None:
        self.body = body
        self.buffers: Sequence[Buffer] = buffers
        self.file: StoreFile | None = None
        self.sizes: tuple[int, ...] = ()
        self.size = len(body) + sum(map(len, buffers)) if buffers else len(body)

    @classmethod
    def from_file(cls, file: StoreFile, sizes: tuple[int, ...]) -> "PickledValue":
        """Make a value from a file."""
        packed = cls(b"")
        packed.file, packed.sizes, packed.size = file, sizes, sum(sizes)
        return packed

    def to_inline_payload(self) -> Payload:
        """Return a payload that goes inside a record."""
        return Payload(bytes(self.body), tuple(map(bytes, self.buffers)) if self.buffers else ())

    def read_parts(self) -> list[Buffer]:
        """Return body and buffers, from memory or from the file."""
        if self.file is None:
            return [self.body, *self.buffers]
        return _split_parts(self.file.read(self.size), self.sizes)

    def write_to_store(self, store: SharedStore) -> Payload | None:
        """Return a payload that refers to a file, which is written if necessary; None if it cannot be."""
        if self.file is None:
            parts = self.read_parts()
            file = store.write(parts)
            if file is None:
                return None
            self.sizes = tuple(map(len, parts))
            self.file, self.body, self.buffers = file, b"", ()
        return Payload(b"", (), self.file.name, 0, self.sizes)

    def load_to_memory(self) -> None:
        """Load the value into memory. If the file cannot be read, unpacking raises the error later."""
        try:
            body, *buffers = self.read_parts()
        except (OSError, FrameError):
            return
        self.body, self.buffers, self.file = body, buffers, None

    def to_pieces(self, stream: int) -> tuple[Iterator[PayloadPiece], Payload]:
        """Return the pieces to send before the record, and the payload that refers to them."""
        parts = self.read_parts()
        return _iterate_pieces(parts, stream), Payload(b"", (), "", stream, tuple(map(len, parts)))


NO_ARGUMENTS: Final = PickledValue(pickle.dumps(((), {}), PICKLE_PROTOCOL))
"""Arguments of a call without arguments."""


def _iterate_pieces(parts: list[Buffer], stream: int) -> Iterator[PayloadPiece]:
    for part in parts:
        view = memoryview(part)
        for first in range(0, len(view), PIECE_BYTES):
            yield PayloadPiece(stream, bytes(view[first : first + PIECE_BYTES]))


def pack(value: object, description: str) -> PickledValue:
    """Pickle a value. Raises ``SerializationError`` with the description ``what``."""
    if type(value) is bytes and len(value) > LARGE_BYTES:
        value = OutOfBandBytes(value)
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, PICKLE_PROTOCOL, buffer_callback=buffers.append)
    except Exception:  # noqa: BLE001  a user's class may raise anything; cloudpickle decides
        return pack_with_cloudpickle(value, description)
    if MAIN_MODULE in body:
        return pack_with_cloudpickle(value, description)
    return PickledValue(body, _raw_buffers(buffers)) if buffers else PickledValue(body)


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> PickledValue:
    """Pickle the arguments of a call. The caller may change them afterwards."""
    if not args and not kwargs:
        return NO_ARGUMENTS
    for argument in args:
        if type(argument) is bytes and len(argument) > LARGE_BYTES:
            args = tuple(
                OutOfBandBytes(one) if type(one) is bytes and len(one) > LARGE_BYTES else one for one in args
            )
            break
    return copy_buffers(pack((args, kwargs), "the arguments"))


def pack_with_cloudpickle(value: object, description: str) -> PickledValue:
    """Pickle a value with cloudpickle, which handles functions and classes without an importable name."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415  slow to import

        body = cloudpickle.dumps(value, PICKLE_PROTOCOL, buffer_callback=buffers.append)
    except Exception as error:
        raise SerializationError(
            f"{description} cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    return PickledValue(body, _raw_buffers(buffers))


def _raw_buffers(buffers: list[pickle.PickleBuffer]) -> list[memoryview]:
    return [buffer.raw() for buffer in buffers]


def copy_buffers(packed: PickledValue) -> PickledValue:
    """Copy the buffers of a value, because the caller may change the objects they belong to."""
    if packed.buffers:
        packed.buffers = tuple(map(_immutable_buffer, packed.buffers))
    return packed


def _immutable_buffer(buffer: Buffer) -> Buffer:
    """Return a buffer that cannot change: itself if it covers a bytes object, else a copy."""
    if isinstance(buffer, memoryview) and type(buffer.obj) is bytes and len(buffer.obj) == buffer.nbytes:
        return buffer
    return bytes(buffer)


def unpack(parts: Sequence[Buffer]) -> Any:
    """Unpickle a value. Raises anything that its classes raise."""
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301  the sender has proved its key


class PayloadAssembler:
    """Assembler of streams from their pieces; both sides use it."""

    def __init__(self) -> None:
        self._streams: dict[int, bytearray] = {}
        self._bytes = 0

    def add_piece(self, piece: PayloadPiece) -> None:
        """Append the next piece. Raises ``FrameError`` if there are too many bytes."""
        self._bytes += len(piece.data)
        if self._bytes > PAYLOAD_BYTES_MAX:
            raise FrameError(f"more than {PAYLOAD_BYTES_MAX} bytes of payloads")
        self._streams.setdefault(piece.stream, bytearray()).extend(piece.data)

    def take_parts(self, payload: Payload, read_file: Callable[[str, int], bytearray]) -> Sequence[Buffer]:
        """Return body and buffers of a received payload. ``read``: reads a file of the shared store."""
        if payload.stream:
            data = self._streams.pop(payload.stream, bytearray())
            self._bytes -= len(data)
            return _split_parts(data, payload.sizes)
        if payload.file:
            return _split_parts(read_file(payload.file, sum(payload.sizes)), payload.sizes)
        return (payload.body, *payload.buffers)


def _split_parts(data: bytearray, sizes: Sequence[int]) -> list[Buffer]:
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


def is_large(packed: PickledValue) -> bool:
    """Return True if the value must not go inside a record."""
    return packed.size > LARGE_BYTES or packed.file is not None
