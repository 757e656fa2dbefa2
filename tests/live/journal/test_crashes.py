"""Whatever the power does, what was committed comes back, in order, and nothing else."""

import hashlib
import os
import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hanse.live.journal import Journal, JournalContents, JournalFull, read_history, read_records
from hanse.live.journal.repair import verify

from .crashing import CrashDisk, PowerCut

RECORDS = st.one_of(
    st.binary(max_size=60),
    st.integers(0, 3000).map(bytes),  # zeros: the hardest to tell from room that was never written
    st.integers(400, 3000).map(lambda size: b"HanseBlk" * (size // 8)),
    st.integers(1, 2000).map(lambda size: b"\xff" * size),
)


def state_after(records: list[bytes]) -> bytes:
    """A state that depends on every record and on their order; of a size that varies."""
    digest = hashlib.sha256(b"".join(len(each).to_bytes(4, "big") + each for each in records)).digest()
    return digest * (1 + digest[0] % 40)


class Crashes(RuleBasedStateMachine):
    """A journal, and a list that says what must be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="hanse-journal-"))
        self.generation = 0
        self.expected: list[bytes] = []
        """Everything appended."""
        self.committed = 0
        self.in_flight = 0
        """How many records the commit that the power cut interrupted was about to write."""

    @initialize(
        segment_bytes=st.sampled_from([2048, 8192, 70_000]), retain=st.sampled_from([0, 9000, 1 << 20])
    )
    def begin(self, segment_bytes: int, retain: int) -> None:
        self.segment_bytes, self.retain_bytes = segment_bytes, retain
        self.directory = self.place / "0"
        self.disk = CrashDisk(self.directory)
        self.open()

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.disk.full = False
            self.journal.close()
            self.committed = len(self.expected)
            self.check_readers()
        shutil.rmtree(self.place)

    def open(self) -> None:
        self.journal, recovered = Journal.open(
            self.directory, disk=self.disk, segment_bytes=self.segment_bytes, retain_bytes=self.retain_bytes
        )
        self.check(recovered)

    def check(self, found: JournalContents) -> None:
        count = found.snapshot_position + len(found.records)
        assert count in (self.committed, self.committed + self.in_flight)
        assert self.journal.position == self.journal.durable == count
        assert found.records == self.expected[found.snapshot_position : count]
        if found.snapshot is not None:
            assert found.snapshot == state_after(self.expected[: found.snapshot_position])
        self.expected, self.committed, self.in_flight = self.expected[:count], count, 0

    def check_readers(self) -> None:
        past = read_history(self.directory)
        if past.snapshot is not None:
            assert past.snapshot == state_after(self.expected[: past.position])
        numbers = list(range(past.position + 1, self.committed + 1))
        assert list(past.records) == [(number, self.expected[number - 1]) for number in numbers]
        verdict = verify(self.directory)
        assert verdict.problem is None
        assert verdict.last == self.committed

    def lose_power(self, seed: int) -> None:
        """Leave the old files behind; go on with what a disk may hold of them."""
        draw = random.Random(seed)
        image = self.disk.image(draw)
        self.generation += 1
        self.directory = self.place / str(self.generation)
        self.directory.mkdir()
        for name, content in image.items():
            (self.directory / name).write_bytes(content)
        self.disk = CrashDisk(self.directory)

    def abandon(self) -> None:
        """What the end of a process does to its files."""
        for fd in list(self.disk._open):
            os.close(fd)
        journal = self.journal
        if journal._lock_fd is not None:
            os.close(journal._lock_fd)
            journal._lock_fd = None

    @rule(record=RECORDS)
    def append(self, record: bytes) -> None:
        self.expected.append(record)
        assert self.journal.append(record) == len(self.expected)

    @rule(records=st.lists(RECORDS, min_size=1, max_size=8))
    def append_and_commit(self, records: list[bytes]) -> None:
        for record in records:
            self.append(record)
        self.commit()

    @rule()
    def commit(self) -> None:
        try:
            assert self.journal.commit() == len(self.expected)
        except JournalFull:
            assert self.disk.full
        else:
            self.committed = len(self.expected)

    @rule(full=st.booleans())
    def somebody_else_fills_the_disk(self, full: bool) -> None:
        self.disk.full = full

    @precondition(lambda self: self.committed > 0)
    @rule(back=st.integers(0, 5))
    def snapshot(self, back: int) -> None:
        position = self.snapshot_position(back)
        self.journal.snapshot(position, state_after(self.expected[:position]))

    def snapshot_position(self, back: int) -> int:
        newest = max(self.journal._snapshots, default=0)
        return max(newest, self.committed - back)

    @rule()
    def close_and_open(self) -> None:
        """What finds no room at the close is dropped."""
        self.in_flight = len(self.expected) - self.committed
        self.journal.close()
        if not self.disk.full:
            self.committed, self.in_flight = len(self.expected), 0
        self.open()

    @rule(seed=st.integers(0, 1 << 32))
    def power_fails(self, seed: int) -> None:
        self.abandon()
        self.lose_power(seed)
        self.open()

    @rule(
        fuse=st.integers(0, 12),
        seed=st.integers(0, 1 << 32),
        what=st.sampled_from(["commit", "snapshot", "close", "open"]),
        again=st.integers(0, 12),
    )
    def power_fails_during(self, fuse: int, seed: int, what: str, again: int) -> None:
        """...and perhaps once more while the journal recovers from that."""
        self.disk.fuse = fuse
        try:
            if what == "snapshot" and self.committed:
                self.snapshot(0)
            elif what == "commit":
                self.in_flight = len(self.expected) - self.committed
                self.commit()
                self.in_flight = 0
            else:
                self.in_flight = len(self.expected) - self.committed
                self.journal.close()
                if not self.disk.full:
                    self.committed, self.in_flight = len(self.expected), 0
        except PowerCut:
            pass
        self.abandon()
        self.lose_power(seed)
        self.disk.fuse = again
        try:
            self.open()
        except PowerCut:
            self.abandon()
            self.lose_power(seed + 1)
            self.open()
        self.disk.fuse = None

    @invariant()
    def numbers_agree(self) -> None:
        if hasattr(self, "journal"):
            assert self.journal.position == len(self.expected)
            assert self.journal.durable == self.committed

    @rule()
    def readers_see_what_is_there(self) -> None:
        after = max(self.committed - 3, read_history(self.directory).position)
        assert list(read_records(self.directory, after)) == [
            (number, self.expected[number - 1]) for number in range(after + 1, self.committed + 1)
        ]


Crashes.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCrashes = Crashes.TestCase


def test_a_full_disk_after_a_growth_that_the_power_cut_short() -> None:
    """The file is longer than any block says, and the next growth finds no room and gives its room back."""
    life = Crashes()
    life.begin(8192, 0)
    life.close_and_open()
    life.append(b"")
    life.close_and_open()
    life.append(b"")
    life.power_fails_during(fuse=1, seed=0, what="commit", again=0)
    life.somebody_else_fills_the_disk(full=True)
    life.append(b"")
    life.close_and_open()
    life.numbers_agree()
    life.teardown()


def test_the_power_may_fail_before_any_step(tmp_path: Path) -> None:
    """One life with growth, new segments and snapshots, cut off before each of its steps; of every cut some
    of the states that a disk can be left in."""
    records = [b"%d" % number * (number % 7 * 100) for number in range(1, 61)]
    steps = 0
    whole_life = False
    while not whole_life:
        directory = tmp_path / f"{steps}"
        disk = CrashDisk(directory)
        disk.fuse = steps
        acknowledged = trying = 0
        journal = None
        try:
            journal, _ = Journal.open(directory, segment_bytes=16 << 10, retain_bytes=0, disk=disk)
            for number, record in enumerate(records, 1):
                journal.append(record)
                if number % 2 == 0:
                    trying = number
                    acknowledged = journal.commit()
                if number % 15 == 0:
                    journal.snapshot(acknowledged, state_after(records[:acknowledged]))
            whole_life = True
        except PowerCut:
            pass
        for seed in range(10):
            after = tmp_path / f"{steps}-{seed}"
            after.mkdir()
            for name, content in disk.image(random.Random(seed * 1000 + steps)).items():
                (after / name).write_bytes(content)
            again, found = Journal.open(after, disk=CrashDisk(after))
            assert again.position in (acknowledged, trying)
            assert found.records == records[found.snapshot_position : again.position]
            assert found.snapshot in (None, state_after(records[: found.snapshot_position]))
            again.close()
            shutil.rmtree(after)
        for fd in [*disk._open, *([journal._lock_fd] if journal and journal._lock_fd else [])]:
            os.close(fd)
        shutil.rmtree(directory)
        steps += 1
    assert steps > 80
