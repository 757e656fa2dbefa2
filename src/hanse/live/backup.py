"""Backups of a member or of the authority, to move it to another machine or to restore it.

A backup is a compressed tar file that only its owner can read, because it contains keys. A member's backup
has its identity, its journal and the journal's files; not its tasks, its log and its read model, which is
rebuilt. It can be made while the member runs: a journal is copied from its end to its beginning, so all
blocks before a copied block are whole, as after a crash.
"""

import io
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hanse.league.file import load
from hanse.live.high_water_mark import (
    HIGH_WATER_MARK_FILE,
    JOURNAL_OLDER_FILE,
    HighWaterMark,
    LostHistoryError,
    read_high_water_mark,
)
from hanse.live.journal.disk import is_in_use
from hanse.live.journal.errors import CorruptJournal, JournalError
from hanse.live.journal.files import IDENTITY_NAME, list_files
from hanse.live.journal.journal import Journal
from hanse.live.recovery import JOURNAL_DIRECTORY, LOST_RECORDS_FILE
from hanse.security.atomic_files import PRIVATE, sync_directory
from hanse.security.home import AUTHORITY, PEOPLE, Home

MANIFEST_FILE: Final = "backup.json"
FORMAT_VERSION: Final = 1
TASKS_DIRECTORY: Final = "tasks"
"""Directory of tasks: not restored, and kept when everything else is replaced."""
MEMBER_FILES: Final = (
    *("identity.pem", "ca.pem", "eras.json", "clock.json", "nodes.json", "revoked.json", "runner.epoch"),
)
"""Files of a member beside its journal."""
COPY_ATTEMPTS_MAX: Final = 5
"""Number of copies of a journal that are tried while its files are removed or sealed."""
PAGE_BYTES: Final = 4_096


class BackupError(Exception):
    """A backup that cannot be made or restored; the message says what to do."""


class Manifest(msgspec.Struct, frozen=True):
    """Description of a backup, its first file."""

    format: int
    league: str
    name: str
    """Member's name, or ``authority``."""
    made: str
    """Wall-clock time (UTC)."""
    reached: HighWaterMark | None = None
    """End of the member's journal; None for the authority."""


class RestoreResult(msgspec.Struct, frozen=True):
    """Result of a restore."""

    manifest: Manifest
    aside: Path | None
    """Directory with the files that were there before."""
    lost: int
    """Number of records that the member is known to have had beyond the backup."""


def back_up(home: Home, name: str, target: Path) -> Manifest:
    """Write a backup of a member of this machine, or of the authority, to a new file."""
    if target.exists():
        raise BackupError(f"{target} exists already; nothing was written. Choose another name.")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent} is not a directory. Make it first.")
    league = load(home.league_file).name
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as scratch:
        gathered = Path(scratch) / "files"
        gathered.mkdir()
        shutil.copy2(home.league_file, gathered)
        mark = None
        if name == AUTHORITY:
            _gather_authority(home, gathered)
        else:
            mark = _gather_member(home.member(name), gathered / name)
        manifest = Manifest(FORMAT_VERSION, league, name, made, mark)
        part = Path(scratch) / "part"
        _pack(gathered, manifest, part)
        part.rename(target)
    sync_directory(target.parent)
    return manifest


def restore(home: Home, source: Path) -> RestoreResult:
    """Restore a backup into a home. Present files are set aside, except tasks that may still run. A member
    known to have had more records is marked as one that lost records, and will not start."""
    with _open_archive(source) as archive:
        manifest = _read_manifest(archive, source)
        directory = home.authority if manifest.name == AUTHORITY else home.member(manifest.name)
        _refuse_other_league(home, manifest)
        present = _refuse_running_or_newer(directory, manifest)
        home.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.path, prefix=".restore-") as scratch:
            files = _unpack(archive, source, Path(scratch))
            aside = _set_aside(directory)
            _move_files(files, Path(scratch), home.path)
    lost = 0
    if manifest.reached is not None and present is not None and present.journal == manifest.reached.journal:
        lost = max(0, present.position - manifest.reached.position)
    if lost:
        (directory / LOST_RECORDS_FILE).write_text(
            f"restored from a backup of {manifest.made}, which ends {lost} records too early\n",
            encoding="utf-8",
        )
    _restore_owner(home, directory)
    return RestoreResult(manifest, aside, lost)


# --- making -------------------------------------------------------------------------------------------------


def _gather_authority(home: Home, gathered: Path) -> None:
    if not home.authority.is_dir():
        raise BackupError(f"{home.authority} does not exist. Run this where the league was founded.")
    for directory in (AUTHORITY, PEOPLE):
        if (home.path / directory).is_dir():
            shutil.copytree(home.path / directory, gathered / directory, ignore=_ignore_part_files)
    if (home.path / "revoked.json").exists():
        shutil.copy2(home.path / "revoked.json", gathered)


def _ignore_part_files(_: str, names: list[str]) -> list[str]:
    """Return the names of files that are being written."""
    return [name for name in names if name.endswith(".part")]


def _gather_member(directory: Path, gathered: Path) -> HighWaterMark:
    if not (directory / JOURNAL_DIRECTORY / IDENTITY_NAME).exists():
        raise BackupError(
            f"{directory} has no journal. Backups are made of brokers, wardens and the authority, each on "
            f"its own machine; a runner needs none."
        )
    for marker in (LOST_RECORDS_FILE, JOURNAL_OLDER_FILE):
        if (directory / marker).exists():
            raise BackupError(f"{directory.name} has lost records (see {directory / marker}).")
    gathered.mkdir()
    mark = copy_journal(directory / JOURNAL_DIRECTORY, gathered / JOURNAL_DIRECTORY)
    for name in MEMBER_FILES:
        if (directory / name).exists():
            shutil.copy2(directory / name, gathered)
    (gathered / HIGH_WATER_MARK_FILE).write_bytes(msgspec.json.encode(mark))
    return mark


def copy_journal(source: Path, target: Path) -> HighWaterMark:
    """Copy a journal that may be written to; return the end of the copy, which has no torn tail."""
    for attempt in range(COPY_ATTEMPTS_MAX):
        try:
            return _copy_journal_once(source, target)
        except (FileNotFoundError, CorruptJournal):
            if attempt == COPY_ATTEMPTS_MAX - 1:
                raise
            shutil.rmtree(target)
    raise AssertionError("the last attempt returns or raises")


def _copy_journal_once(source: Path, target: Path) -> HighWaterMark:
    target.mkdir()
    files = list_files(source)  # before the copy: so its snapshots are not ahead of its segments
    shutil.copy2(source / IDENTITY_NAME, target)
    for _, path in files.snapshots:
        shutil.copy2(path, target)
    for _, path in files.segments:
        _copy_backwards(path, target / path.name)
    journal, _ = Journal.open(target, create=False)
    journal.close()
    return HighWaterMark(journal.identity, journal.position)


def _copy_backwards(source: Path, target: Path) -> None:
    """Copy a growing file, last page first. Empty pages are left out."""
    with source.open("rb") as reader, target.open("wb") as writer:
        before, descriptor = os.fstat(reader.fileno()), reader.fileno()
        for offset in range((before.st_size - 1) // PAGE_BYTES * PAGE_BYTES, -1, -PAGE_BYTES):
            page = os.pread(descriptor, PAGE_BYTES, offset)
            if page.count(0) != len(page):
                os.pwrite(writer.fileno(), page, offset)
        writer.truncate(os.fstat(descriptor).st_size)  # blocks may have been appended meanwhile
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))  # clocks resume from this time


def _pack(gathered: Path, manifest: Manifest, part: Path) -> None:
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive:
            content = msgspec.json.encode(manifest)
            head = tarfile.TarInfo(MANIFEST_FILE)
            head.size, head.mode = len(content), PRIVATE
            archive.addfile(head, io.BytesIO(content))
            for path in sorted(gathered.rglob("*")):
                if path.is_file():
                    archive.add(path, path.relative_to(gathered).as_posix(), recursive=False)
        file.flush()
        os.fsync(descriptor)


# --- restoring ------------------------------------------------------------------------------------------


def _open_archive(source: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(source, mode="r:gz")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise BackupError(f"{source} cannot be read as a backup: {error}") from None


def _read_manifest(archive: tarfile.TarFile, source: Path) -> Manifest:
    try:
        first = archive.next()
        file = archive.extractfile(first) if first is not None and first.name == MANIFEST_FILE else None
        if file is None:
            raise BackupError(f"{source} is not a backup: it does not begin with {MANIFEST_FILE}.")
        manifest = msgspec.json.decode(file.read(), type=Manifest)
    except (OSError, tarfile.TarError, EOFError, msgspec.MsgspecError) as error:
        raise BackupError(f"{source} is damaged: {error}. Nothing was changed.") from None
    if Path(manifest.name).name != manifest.name:
        raise BackupError(f"{source} is a backup of {manifest.name!r}, which is not a valid name.")
    if manifest.format != FORMAT_VERSION:
        raise BackupError(
            f"{source} has format {manifest.format}, and this program reads format {FORMAT_VERSION}."
        )
    return manifest


def _refuse_other_league(home: Home, manifest: Manifest) -> None:
    if home.league_file.exists() and (name := load(home.league_file).name) != manifest.league:
        raise BackupError(f"this is a backup of league {manifest.league}, and {home.path} has league {name}.")


def _refuse_running_or_newer(directory: Path, manifest: Manifest) -> HighWaterMark | None:
    """Return the present high-water mark; raise if the member runs or is not older."""
    if manifest.name == AUTHORITY:
        if directory.exists():
            raise BackupError(
                f"{directory} exists already. Move it away first, or keep it and do not restore."
            )
        return None
    if (directory / JOURNAL_DIRECTORY).is_dir() and is_in_use(directory / JOURNAL_DIRECTORY):
        raise BackupError(f"{manifest.name} is running; stop it first.")
    assert manifest.reached is not None, "a member's backup says how far it goes"
    present = _read_present_mark(directory)
    backed_up = manifest.reached
    if (
        present is not None
        and present.journal == backed_up.journal
        and present.position >= backed_up.position
    ):
        raise BackupError(
            f"the journal of {manifest.name} is sound and has {present.position} records, the backup has "
            f"{backed_up.position} of them: nothing was changed. Start {manifest.name} as it is."
        )
    try:
        return read_high_water_mark(directory)
    except LostHistoryError:
        return None


def _read_present_mark(directory: Path) -> HighWaterMark | None:
    """Return the end of the present journal; None if there is none, or a damaged one."""
    try:
        journal, _ = Journal.open(directory / JOURNAL_DIRECTORY, create=False)
    except (JournalError, OSError):
        return None
    journal.close()
    return HighWaterMark(journal.identity, journal.position)


def _set_aside(directory: Path) -> Path | None:
    """Move present files, except tasks, to a directory beside."""
    paths = (
        [path for path in directory.iterdir() if path.name != TASKS_DIRECTORY] if directory.is_dir() else []
    )
    if not paths:
        return None
    aside = next(path for path in _aside_paths(directory) if not path.exists())
    aside.mkdir(mode=0o700)
    for path in paths:
        path.rename(aside / path.name)
    return aside


def _aside_paths(directory: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        yield directory.with_name(f"{directory.name}.before-restore-{number}")


def _unpack(archive: tarfile.TarFile, source: Path, scratch: Path) -> list[Path]:
    """Write the files of a backup to a directory; return their names there. The whole archive is read before
    other files are changed."""
    names = []
    try:
        for entry in archive:
            name = Path(entry.name)
            if entry.name == MANIFEST_FILE or not entry.isfile():
                continue
            if name.is_absolute() or ".." in name.parts:
                raise BackupError(f"{source} is not a backup: it would write {entry.name}.")
            content = archive.extractfile(entry)
            assert content is not None, "an ordinary file has content"
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(scratch / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
            with os.fdopen(descriptor, "wb") as file:
                shutil.copyfileobj(content, file)
                file.flush()
                os.fsync(descriptor)
            os.utime(scratch / name, (entry.mtime, entry.mtime))
            names.append(name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BackupError(f"{source} is damaged: {error}. Nothing was changed.") from None
    return names


def _move_files(names: list[Path], scratch: Path, home: Path) -> None:
    """Move files into a home. A present file stays: it is the league's, or another member's."""
    for name in names:
        path = home / name
        if not path.exists():
            path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            (scratch / name).rename(path)
            sync_directory(path.parent)


def _restore_owner(home: Home, directory: Path) -> None:
    """Give root's files to the owner of the home."""
    if os.geteuid() == 0:
        owner = home.path.stat()
        for path in (home.league_file, directory, *directory.rglob("*")):
            if TASKS_DIRECTORY not in path.relative_to(home.path).parts:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
