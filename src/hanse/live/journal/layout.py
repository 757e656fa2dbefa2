"""Binary layout of a journal: blocks, snapshots and the identity. No I/O.

A commit writes a *block*: a header and the records, cut into sectors of 512 bytes whose last four bytes are a
stamp. Disks write sectors whole, but in any order; a new segment is all zero. So after a crash each sector of
the last block is either all zero or as written, and because of the stamp no written sector is all zero,
whatever the records hold. This lets recovery distinguish a torn block (a sector is missing) from a damaged
block (all sectors are present, and the checksum is wrong).

Every header carries the hash of the block before and its own, over header and records: a chain from the
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
"""Bytes that a disk writes atomically."""
STAMP = b"\xa5\xc3\x96\x69"
"""Last bytes of every written sector: many one bits, so that no flipped bit makes a sector all zero."""
SECTOR_PAYLOAD_BYTES = SECTOR - len(STAMP)
"""Bytes of a sector without the stamp."""
RECORD_BYTES_MAX = 8 << 20
"""Size of the largest record."""
PENDING_BYTES_MAX = 64 << 20
"""Maximal size of one commit, with length prefixes; beyond it ``append`` raises ``JournalBehind``."""
SNAPSHOT_BYTES_MAX = 1 << 30
"""Size of the largest state in a snapshot."""
FORMAT = 1
"""Version of the layout."""

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
"""Bytes that a record takes in a block besides its own."""
HEADER_BYTES = _HEADER.size
SNAPSHOT_HEAD_BYTES = _SNAPSHOT.size
MAGIC = _BLOCK_MAGIC


class BlockKind(IntEnum):
    """Kind of a block. Only ``RECORDS`` holds records."""

    RECORDS = 1
    SEALED = 2
    """Last block of a full segment: the next segment exists and has ``allocated`` bytes."""
    CLOSED = 3
    """Mark of an orderly close: no block before it can be torn."""


class Header(msgspec.Struct, frozen=True):
    """Header of a block."""

    kind: BlockKind
    sectors: int
    """Length of the block in sectors."""
    first: int
    """Number of its first record; in a block without records, of the next record."""
    count: int
    payload_bytes: int
    allocated: int
    """Durable minimal length of the segment's file (``BlockKind.SEALED`` uses it for the next file). No
    crash shortens a file: a shorter file was cut."""
    journal: bytes
    """Identity of the journal: 16 random bytes, so that a block of another journal is detected."""
    previous: bytes
    """Chain value of the previous block."""
    chain: bytes
    """Chain value of this block: SHA-256 over this header up to here and the payload."""
    body_crc: int

    @property
    def byte_count(self) -> int:
        """Length on disk."""
        return self.sectors * SECTOR


def genesis_chain(journal: bytes) -> bytes:
    """Return the chain value before the first block of a journal."""
    return hashlib.sha256(b"hanse journal " + journal).digest()


def restart_chain(journal: bytes, digest: bytes) -> bytes:
    """Return the chain value after a repair that kept only a snapshot, with this digest."""
    return hashlib.sha256(b"hanse journal restarted " + journal + digest).digest()


def block_bytes(payload_bytes: int) -> int:
    """Return the bytes on disk of a block with a payload of this size."""
    return -(-(HEADER_BYTES + payload_bytes) // SECTOR_PAYLOAD_BYTES) * SECTOR


def encode_block(
    kind: BlockKind, first: int, records: list[bytes], *, allocated: int, journal: bytes, previous: bytes
) -> tuple[bytes, bytes]:
    """Encode a block. Return its bytes on disk and its chain value."""
    parts: list[bytes] = []
    for record in records:
        parts.append(_LENGTH.pack(len(record)))
        parts.append(record)
    payload = b"".join(parts)
    sectors = block_bytes(len(payload)) // SECTOR
    body = payload.ljust(sectors * SECTOR_PAYLOAD_BYTES - HEADER_BYTES, b"\0")
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
    return _stamp_sectors(b"".join((head, _LENGTH.pack(zlib.crc32(head)), body)), sectors), chain


def _stamp_sectors(logical: bytes, sectors: int) -> bytes:
    if sectors == 1:
        return logical + STAMP
    grid = np.empty((sectors, SECTOR), dtype=np.uint8)
    grid[:, :SECTOR_PAYLOAD_BYTES] = np.frombuffer(logical, dtype=np.uint8).reshape(
        sectors, SECTOR_PAYLOAD_BYTES
    )
    grid[:, SECTOR_PAYLOAD_BYTES:] = np.frombuffer(STAMP, dtype=np.uint8)
    return grid.tobytes()


def decode_header(sector: bytes) -> Header | None:
    """Decode the header in the first sector of a block; None if it is not intact."""
    if len(sector) < SECTOR or sector[:8] != _BLOCK_MAGIC or sector[SECTOR_PAYLOAD_BYTES:] != STAMP:
        return None
    _, version, kind, *fields, crc = _HEADER.unpack_from(sector)
    if zlib.crc32(sector[: HEADER_BYTES - 4]) != crc:
        return None
    sectors, first, count, payload_bytes, allocated, journal, previous, chain, body_crc = fields
    if version != FORMAT:
        raise UnknownFormat(version, FORMAT)
    if kind not in BlockKind.__members__.values() or sectors * SECTOR != block_bytes(payload_bytes):
        return None
    return Header(
        BlockKind(kind), sectors, first, count, payload_bytes, allocated, journal, previous, chain, body_crc
    )


def decode_body(block: bytes, head: Header) -> bytes | None:
    """Decode the payload of a block with an intact header; None if the block is damaged."""
    if len(block) != head.byte_count:
        return None
    if head.sectors == 1:
        logical = block[:SECTOR_PAYLOAD_BYTES] if block[SECTOR_PAYLOAD_BYTES:] == STAMP else b""
    else:
        grid = np.frombuffer(block, dtype=np.uint8).reshape(head.sectors, SECTOR)
        whole = bool((grid[:, SECTOR_PAYLOAD_BYTES:] == np.frombuffer(STAMP, dtype=np.uint8)).all())
        logical = grid[:, :SECTOR_PAYLOAD_BYTES].tobytes() if whole else b""
    padded = logical[HEADER_BYTES:]
    if not logical or zlib.crc32(padded) != head.body_crc:
        return None
    digest = hashlib.sha256(logical[:_HASHED])
    digest.update(padded)
    return padded[: head.payload_bytes] if digest.digest() == head.chain else None


def decode_records(payload: bytes) -> list[bytes]:
    """Split a payload into its records. The checksum was right, so a parse error is a bug."""
    found = []
    at, end = 0, len(payload)
    while at < end:
        (length,) = _LENGTH.unpack_from(payload, at)
        at += PREFIX_BYTES
        found.append(payload[at : at + length])
        at += length
    assert at == end, "a block's records must fill its payload exactly"
    return found


def is_torn(block: bytes) -> bool:
    """Return True if a crash explains the block: some sector was never written, all others were."""
    sectors = [block[at : at + SECTOR] for at in range(0, len(block), SECTOR)]
    written = [sector for sector in sectors if sector != _BLANK]
    return len(written) < len(sectors) and all(sector[SECTOR_PAYLOAD_BYTES:] == STAMP for sector in written)


class Floor(msgspec.Struct, frozen=True):
    """Oldest retained files, as recorded in the newest snapshot; older files are leftovers of a drop."""

    snapshot: int
    """Position of the oldest retained snapshot."""
    segment: int
    """First record number of the oldest retained segment."""
    chain: bytes
    """Chain value before that segment."""
    allocated: int
    """Minimal length of this segment's file."""


class SnapshotHead(msgspec.Struct, frozen=True):
    """Header of a snapshot: all but the state."""

    journal: bytes
    position: int
    """Number of the last record that the state includes."""
    state_bytes: int
    floor: Floor
    digest: bytes
    """SHA-256 of the state."""


def encode_snapshot_head(journal: bytes, position: int, state: bytes, floor: Floor) -> bytes:
    """Encode the bytes before the state in a snapshot's file."""
    head = _SNAPSHOT.pack(
        _SNAPSHOT_MAGIC, FORMAT, 0, 0, journal, position, len(state),
        floor.snapshot, floor.segment, floor.allocated, floor.chain, hashlib.sha256(state).digest(), 0,
    )[:-4]  # fmt: skip  # one line per group of fields
    return head + _LENGTH.pack(zlib.crc32(head))


def decode_snapshot(data: bytes) -> tuple[SnapshotHead, bytes] | None:
    """Decode a snapshot's file; None if it is damaged."""
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


class JournalIdentity(msgspec.Struct, frozen=True):
    """Identity of the journal in a directory."""

    journal: bytes
    allocated: int
    """Initial length of the first segment's file."""


def encode_identity(identity: JournalIdentity) -> bytes:
    """Encode an identity file."""
    head = _IDENTITY.pack(_IDENTITY_MAGIC, FORMAT, 0, 0, identity.journal, identity.allocated, 0)[:-4]
    return head + _LENGTH.pack(zlib.crc32(head))


def decode_identity(data: bytes) -> JournalIdentity | None:
    """Decode an identity file; None if it is damaged."""
    if len(data) != _IDENTITY.size or data[:8] != _IDENTITY_MAGIC:
        return None
    _, version, _, _, journal, allocated, crc = _IDENTITY.unpack(data)
    if zlib.crc32(data[:-4]) != crc:
        return None
    if version != FORMAT:
        raise UnknownFormat(version, FORMAT)
    return JournalIdentity(journal, allocated)
