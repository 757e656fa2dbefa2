"""A disk that can lose power: what was not synced survives or not, sector by sector and name by name.

It works on real files, so that the journal reads what it wrote, and remembers beside them what a disk would
hold for certain. ``image`` draws one of the states that a loss of power can leave.
"""

import errno
import os
import random
from pathlib import Path

from hanse.live.journal.disk import Disk
from hanse.live.journal.layout import SECTOR


class PowerCut(BaseException):
    """The process ends here."""


class _File:
    """One file: what is durable, and what the operating system holds on top of it."""

    def __init__(self, content: bytes) -> None:
        self.durable = bytearray(content)
        self.current = bytearray(content)
        self.touched: set[int] = set()
        """Sectors written since the last sync."""

    def after_loss(self, draw: random.Random) -> bytes:
        grown = draw.random() < 0.5
        size = len(self.current) if grown else len(self.durable)
        content = bytearray(self.durable[:size].ljust(size, b"\0"))
        kept = draw.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        for sector in sorted(self.touched):
            begin, end = sector * SECTOR, min((sector + 1) * SECTOR, len(self.current))
            if draw.random() < kept:
                if len(content) < end:
                    content.extend(bytes(end - len(content)))
                content[begin:end] = self.current[begin:end]
        return bytes(content)


class CrashDisk(Disk):
    """The files of one directory. With a ``fuse`` the power fails before that many operations are done."""

    def __init__(self, directory: Path) -> None:
        self.fuse: int | None = None
        self.full = False
        """Whether somebody else has taken all the room."""
        self.operations = 0
        self._names: dict[Path, _File] = {}
        if directory.exists():
            for path in sorted(directory.iterdir()):
                if path.is_file() and path.name != "lock":
                    self._names[path] = _File(path.read_bytes())
        self._durable_names = dict(self._names)
        self._renamings: list[tuple[Path, _File | None]] = []
        """Changes of names since the directory's last sync: the name, and what it then meant."""
        self._open: dict[int, _File] = {}

    def image(self, draw: random.Random) -> dict[str, bytes]:
        """What the directory may hold after the power comes back."""
        names = dict(self._durable_names)
        kept = draw.choice([0.0, 0.5, 1.0])
        for path, meaning in self._renamings:
            if draw.random() < kept:
                if meaning is None:
                    names.pop(path, None)
                else:
                    names[path] = meaning
        return {path.name: file.after_loss(draw) for path, file in sorted(names.items())}

    def _step(self) -> None:
        self.operations += 1
        if self.fuse is not None:
            if self.fuse == 0:
                raise PowerCut
            self.fuse -= 1

    def _mean(self, path: Path, file: _File | None) -> None:
        self._renamings.append((path, file))
        if file is None:
            del self._names[path]
        else:
            self._names[path] = file

    def create(self, path: Path) -> int:
        self._step()
        fd = super().create(path)
        self._open[fd] = _File(b"")
        self._mean(path, self._open[fd])
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._open[fd] = self._names[path]
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        super().close(fd)

    def allocate(self, fd: int, begin: int, end: int) -> None:  # noqa: ARG002  # as Disk has it
        self._step()
        if self.full:
            raise OSError(errno.ENOSPC, "no room")
        os.ftruncate(fd, max(end, os.fstat(fd).st_size))
        file = self._open[fd]
        file.current.extend(bytes(max(0, end - len(file.current))))

    def truncate(self, fd: int, size: int) -> None:
        """A file may be longer than the journal knows: it grew, and the power failed before that was said."""
        assert self.full, "only a full disk needs this, and this one is not"
        assert len(self._open[fd].current) >= size, "what was never allocated cannot be given back"
        super().truncate(fd, size)
        del self._open[fd].current[size:]

    def write(self, fd: int, data: bytes, offset: int) -> None:
        super().write(fd, data, offset)
        file = self._open[fd]
        end = offset + len(data)
        file.current.extend(bytes(max(0, end - len(file.current))))
        file.current[offset:end] = data
        file.touched.update(range(offset // SECTOR, -(-end // SECTOR)))
        self._step()  # behind it: the power fails while the operating system still has the data

    def sync(self, fd: int) -> None:
        self._step()
        file = self._open[fd]
        file.durable = bytearray(file.current)
        file.touched.clear()

    def sync_all(self, fd: int) -> None:
        self.sync(fd)

    def sync_directory(self, directory: Path) -> None:  # noqa: ARG002  # as Disk has it
        self._step()
        self._durable_names = dict(self._names)
        self._renamings.clear()

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)
        self._mean(target, self._names[source])
        self._mean(source, None)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)
        self._mean(path, None)
