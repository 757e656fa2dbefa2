"""What the bytes of a journal mean: blocks, snapshots, the identity, and the names of files. No I/O.

A *block* is what one commit writes: a header and the records, cut into sectors of 512 bytes of which the last
four are a stamp. Disks write sectors whole, but in any order; a fresh segment is all zero. So after a crash
each sector of the last block is either all zero or as written, never something else, and because of the stamp
no written sector is all zero, whatever the records hold. That is what lets recovery tell a torn block (some
sector is missing) from a damaged one (all are there, and the checksum is wrong).

Every header carries the hash of its predecessor and its own, over header and records: a chain from the
journal's first block to its last. Numbers are little-endian.
"""

import hashlib
import struct
import zlib
from enum import IntEnum

import msgspec
import numpy as np

from hanse.live.journal.errors import UnknownFormat

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
STAMP = b"\xa5\xc3\x96\x69"
"""The last bytes of every written sector: many ones, so that no flipped bit makes a sector all zero."""
ROOM = SECTOR - len(STAMP)
"""Bytes of a sector that are ours."""
RECORD_BYTES_MAX = 8 << 20
"""The largest record."""
PENDING_BYTES_MAX = 64 << 20
"""The most that one commit may hold, with length prefixes; beyond it ``append`` raises ``JournalBehind``."""
SNAPSHOT_BYTES_MAX = 1 << 30
"""The largest state of a snapshot."""
FORMAT = 1
"""Version of everything here."""

_BLOCK_MAGIC = b"HanseBlk"
_SNAPSHOT_MAGIC = b"HanseSnp"
_IDENTITY_MAGIC = b"HanseJnl"
_LENGTH = struct.Struct("<I")
_HEADER = struct.Struct("<8sHHIQIIQ16s32s32sII")
_HASHED = _HEADER.size - 32 - 4 - 4
_SNAPSHOT = struct.Struct("<8sHHI16sQQQQQ32s32sI")
_IDENTITY = struct.Struct("<8sHHI16sQI")
_BLANK = bytes(SECTOR)
PREFIX_BYTES = _LENGTH.size
"""What a record takes in a block beside itself."""
HEADER_BYTES = _HEADER.size
SNAPSHOT_HEAD_BYTES = _SNAPSHOT.size
MAGIC = _BLOCK_MAGIC


class Kind(IntEnum):
    """What a block is for. All but the first hold no records."""

    RECORDS = 1
    SEALED = 2
    """The last block of a full segment: the next one exists and has ``allocated`` bytes."""
    CLOSED = 3
    """The journal was closed in good order: what is before it cannot be torn."""


class Header(msgspec.Struct, frozen=True):
    """The head of a block."""

    kind: Kind
    sectors: int
    """How long the block is."""
    first: int
    """Number of its first record; for a block without records, of the next that will be."""
    count: int
    payload_bytes: int
    allocated: int
    """Bytes that the segment's file is known to have, durably (see ``Kind.SEALED`` for its other use). A
    shorter file was cut by somebody: no crash shortens it."""
    journal: bytes
    """Which journal: 16 random bytes, so that no block of another can be taken for one of ours."""
    previous: bytes
    """Chain value of the block before."""
    chain: bytes
    """Own chain value: SHA-256 over this header up to here and the payload."""
    body_crc: int

    @property
    def bytes(self) -> int:
        """Length on disk."""
        return self.sectors * SECTOR


def genesis(journal: bytes) -> bytes:
    """The chain value before the first block of a journal."""
    return hashlib.sha256(b"hanse journal " + journal).digest()


def restart(journal: bytes, digest: bytes) -> bytes:
    """The chain value after a repair that has only a snapshot (with that digest) to go on from."""
    return hashlib.sha256(b"hanse journal restarted " + journal + digest).digest()


def extent(payload_bytes: int) -> int:
    """Bytes on disk of a block with that payload."""
    return -(-(HEADER_BYTES + payload_bytes) // ROOM) * SECTOR


def encode(
    kind: Kind, first: int, records: list[bytes], *, allocated: int, journal: bytes, previous: bytes
) -> tuple[bytes, bytes]:
    """A block as it goes to disk, and its chain value."""
    parts: list[bytes] = []
    for record in records:
        parts.append(_LENGTH.pack(len(record)))
        parts.append(record)
    payload = b"".join(parts)
    sectors = extent(len(payload)) // SECTOR
    body = payload.ljust(sectors * ROOM - HEADER_BYTES, b"\0")
    fields = (
        _BLOCK_MAGIC,
        FORMAT,
        kind,
        sectors,
        first,
        len(records),
        len(payload),
        allocated,
        journal,
        previous,
    )
    hashed = _HEADER.pack(*fields, b"", 0, 0)[:_HASHED]
    digest = hashlib.sha256(hashed)
    digest.update(body)
    chain = digest.digest()
    head = _HEADER.pack(*fields, chain, zlib.crc32(body), 0)[:-4]
    return _stamped(b"".join((head, _LENGTH.pack(zlib.crc32(head)), body)), sectors), chain


def _stamped(logical: bytes, sectors: int) -> bytes:
    if sectors == 1:
        return logical + STAMP
    grid = np.empty((sectors, SECTOR), dtype=np.uint8)
    grid[:, :ROOM] = np.frombuffer(logical, dtype=np.uint8).reshape(sectors, ROOM)
    grid[:, ROOM:] = np.frombuffer(STAMP, dtype=np.uint8)
    return grid.tobytes()


def header(sector: bytes) -> Header | None:
    """The header in the first sector of a block, or None where there is no intact one."""
    if len(sector) < SECTOR or sector[:8] != _BLOCK_MAGIC or sector[ROOM:] != STAMP:
        return None
    _, version, kind, *fields, crc = _HEADER.unpack_from(sector)
    if zlib.crc32(sector[: HEADER_BYTES - 4]) != crc:
        return None
    sectors, first, count, payload_bytes, allocated, journal, previous, chain, body_crc = fields
    if version != FORMAT:
        raise UnknownFormat(version, FORMAT)
    if kind not in Kind.__members__.values() or sectors * SECTOR != extent(payload_bytes):
        return None
    return Header(
        Kind(kind), sectors, first, count, payload_bytes, allocated, journal, previous, chain, body_crc
    )


def body(block: bytes, head: Header) -> bytes | None:
    """The payload of a block whose header is intact, or None when anything of it is not as written."""
    if len(block) != head.bytes:
        return None
    if head.sectors == 1:
        logical = block[:ROOM] if block[ROOM:] == STAMP else b""
    else:
        grid = np.frombuffer(block, dtype=np.uint8).reshape(head.sectors, SECTOR)
        whole = bool((grid[:, ROOM:] == np.frombuffer(STAMP, dtype=np.uint8)).all())
        logical = grid[:, :ROOM].tobytes() if whole else b""
    padded = logical[HEADER_BYTES:]
    if not logical or zlib.crc32(padded) != head.body_crc:
        return None
    digest = hashlib.sha256(logical[:_HASHED])
    digest.update(padded)
    return padded[: head.payload_bytes] if digest.digest() == head.chain else None


def records(payload: bytes) -> list[bytes]:
    """The records of a payload. The payload has passed its checksum, so what does not parse is our bug."""
    found = []
    at, end = 0, len(payload)
    while at < end:
        (length,) = _LENGTH.unpack_from(payload, at)
        at += PREFIX_BYTES
        found.append(payload[at : at + length])
        at += length
    assert at == end, "a block's records must fill its payload exactly"
    return found


def torn(block: bytes) -> bool:
    """Whether a crash can have left a block so: some sector was never written, all others were."""
    sectors = [block[at : at + SECTOR] for at in range(0, len(block), SECTOR)]
    written = [sector for sector in sectors if sector != _BLANK]
    return len(written) < len(sectors) and all(sector[ROOM:] == STAMP for sector in written)


class Floor(msgspec.Struct, frozen=True):
    """How far back a journal goes, as its newest snapshot says; older files are leftovers of a drop."""

    snapshot: int
    """Position of the oldest retained snapshot."""
    segment: int
    """First record number of the oldest retained segment."""
    chain: bytes
    """Chain value before that segment."""
    allocated: int
    """Bytes that this segment's file has at least."""


class SnapshotHead(msgspec.Struct, frozen=True):
    """All of a snapshot but the state."""

    journal: bytes
    position: int
    """The state is the one after this record."""
    state_bytes: int
    floor: Floor
    digest: bytes
    """SHA-256 of the state."""


def snapshot_head(journal: bytes, position: int, state: bytes, floor: Floor) -> bytes:
    """What stands in front of the state in a snapshot's file."""
    head = _SNAPSHOT.pack(
        _SNAPSHOT_MAGIC, FORMAT, 0, 0, journal, position, len(state),
        floor.snapshot, floor.segment, floor.allocated, floor.chain, hashlib.sha256(state).digest(), 0,
    )[:-4]  # fmt: skip  # one line per group of fields
    return head + _LENGTH.pack(zlib.crc32(head))


def snapshot(data: bytes) -> tuple[SnapshotHead, bytes] | None:
    """A snapshot's file taken apart, or None when it is not as written."""
    if len(data) < SNAPSHOT_HEAD_BYTES or data[:8] != _SNAPSHOT_MAGIC:
        return None
    if zlib.crc32(data[: SNAPSHOT_HEAD_BYTES - 4]) != _LENGTH.unpack_from(data, SNAPSHOT_HEAD_BYTES - 4)[0]:
        return None
    _, version, _, _, journal, position, length, oldest, segment, allocated, chain, digest, _ = (
        _SNAPSHOT.unpack_from(data)
    )
    if version != FORMAT:
        raise UnknownFormat(version, FORMAT)
    state = data[SNAPSHOT_HEAD_BYTES:]
    if len(state) != length or hashlib.sha256(state).digest() != digest:
        return None
    return SnapshotHead(journal, position, length, Floor(oldest, segment, chain, allocated), digest), state


class Identity(msgspec.Struct, frozen=True):
    """Which journal a directory holds."""

    journal: bytes
    allocated: int
    """Bytes that the first segment's file had from the start."""


def encode_identity(identity: Identity) -> bytes:
    """The identity as its file holds it."""
    head = _IDENTITY.pack(_IDENTITY_MAGIC, FORMAT, 0, 0, identity.journal, identity.allocated, 0)[:-4]
    return head + _LENGTH.pack(zlib.crc32(head))


def identity(data: bytes) -> Identity | None:
    """An identity file taken apart, or None when it is not as written."""
    if len(data) != _IDENTITY.size or data[:8] != _IDENTITY_MAGIC:
        return None
    _, version, _, _, journal, allocated, crc = _IDENTITY.unpack(data)
    if zlib.crc32(data[:-4]) != crc:
        return None
    if version != FORMAT:
        raise UnknownFormat(version, FORMAT)
    return Identity(journal, allocated)
