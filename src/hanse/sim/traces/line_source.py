"""Bytes of a trace as numbered lines: plain or gzipped, from a file or standard input, in bounded memory.

The gzip stream is decoded here rather than by ``gzip.open`` because a truncated file must still give every
line that it holds, and the report must say where it ended.
"""

import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from hanse.sim.traces.read_report import ReadReport, TraceError

BLOCK_BYTES: Final = 1 << 18
HEAD_BYTES: Final = 1 << 16
"""Bytes that are inspected to recognise a file's format."""
LINE_BYTES_MAX: Final = 1 << 26
"""Longest line; a longer one is counted as a bad row and skipped."""
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WINDOW: Final = 31
"""Window size for zlib: "a gzip stream with the largest window"."""
STDIN: Final = "-"
CUT_SHORT: Final = "cut off where the compressed stream ends early"


class TraceSource:
    """Bytes of one trace. A file can be read several times, standard input once."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.is_stdin = self.name == STDIN
        self.bytes_read = 0
        """Bytes of the (compressed) file read so far in this pass."""
        self._input: BinaryIO | None = sys.stdin.buffer if self.is_stdin else None
        self._first_block = b""
        self.size = 0
        if not self.is_stdin:
            self.path = Path(path)
            if not self.path.is_file():
                what = "is a folder" if self.path.is_dir() else "does not exist"
                raise TraceError(
                    f"{self.name} {what}: give the path of a trace file, or - for standard input"
                )
            self.size = self.path.stat().st_size
        self.raw_head = self._first_bytes()
        self.is_gzip = self.raw_head.startswith(GZIP_MAGIC)
        self.head = self._read_head()

    def blocks(self, report: ReadReport) -> Iterator[bytes]:
        """Return the decompressed bytes in blocks. A truncated stream gives a note, not an error."""
        raw = self._raw_blocks()
        return _decompress(raw, report) if self.is_gzip else raw

    def lines(self, report: ReadReport) -> Iterator[tuple[int, bytes]]:
        """Yield ``(line number from 1, line without its end)``, blank lines included."""
        number, rest, skipping = 0, b"", False
        for block in self.blocks(report):
            parts = (rest + block).split(b"\n") if rest else block.split(b"\n")
            rest = parts.pop()
            for part in parts:
                number += 1
                if skipping:
                    skipping = False
                    continue
                yield number, part
            if len(rest) > LINE_BYTES_MAX:
                if not skipping:
                    report.rows += 1
                    report.bad_row(number + 1, f"line longer than {LINE_BYTES_MAX:,} bytes")
                rest, skipping = b"", True
        if rest and not skipping:
            if any(note.startswith(CUT_SHORT) for note in report.notes):
                report.rows += 1
                report.bad_row(number + 1, CUT_SHORT)
            else:
                yield number + 1, rest

    @property
    def fraction(self) -> float | None:
        """Progress of this pass, from 0 to 1; None if the size is unknown."""
        return self.bytes_read / self.size if self.size else None

    def _first_bytes(self) -> bytes:
        if self._input is not None:
            self._first_block = self._input.read(HEAD_BYTES)
            return self._first_block
        with self.path.open("rb") as file:
            return file.read(HEAD_BYTES)

    def _read_head(self) -> bytes:
        if not self.is_gzip:
            return self.raw_head
        head = b""
        for block in _decompress(iter([self.raw_head]), ReadReport()):
            head += block
            if len(head) >= HEAD_BYTES:
                break
        return head[:HEAD_BYTES]

    def _raw_blocks(self) -> Iterator[bytes]:
        self.bytes_read = 0
        if self._input is not None:
            if not self._first_block and self.raw_head:
                raise TraceError("standard input can be read once only: save it to a file first")
            block, self._first_block = self._first_block, b""
            while block:
                self.bytes_read += len(block)
                yield block
                block = self._input.read(BLOCK_BYTES)
            return
        with self.path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                self.bytes_read += len(block)
                yield block


def _decompress(raw: Iterator[bytes], report: ReadReport) -> Iterator[bytes]:
    """Yield the content of a gzip stream of one or more members; data after damage is dropped, noted."""
    member, begun, done = zlib.decompressobj(GZIP_WINDOW), False, 0
    try:
        for block in raw:
            data = block
            while data:
                begun = True
                out = member.decompress(data, BLOCK_BYTES)
                done += len(out)
                if out:
                    yield out
                data = member.unconsumed_tail
                if member.eof:
                    data = member.unused_data.lstrip(b"\0")  # zero padding after a member is permitted
                    member, begun = zlib.decompressobj(GZIP_WINDOW), False
                    if data and not data.startswith(GZIP_MAGIC[: len(data)]):
                        report.note(
                            f"the data after the gzip stream of {done:,} bytes of text is not gzip: ignored"
                        )
                        return
        if begun:
            tail = member.flush()
            done += len(tail)
            if tail:
                yield tail
            report.note(f"{CUT_SHORT}, after {done:,} bytes of text: the file is incomplete, fetch it again")
    except zlib.error as error:
        report.note(f"{CUT_SHORT}, after {done:,} bytes of text: it is damaged ({error}), fetch it again")
