"""User ids of jobs: handed out once each, never two jobs the same, taken back when nothing is left."""

import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hanse.league.config import UID_MAX, UserRange
from hanse.live.backends.process.task_users import (
    BLOCKS_PER_RANGE,
    JobUserPool,
    UsersMissingError,
    check_unused,
    choose_user,
    has_range,
    reserve_block,
    uid_of,
)
from hanse.model.ids import TaskId, job_id, task_id

RANGE = UserRange(1_500_000_000 + os.getpid() * 3 * BLOCKS_PER_RANGE, 3 * BLOCKS_PER_RANGE)
"""Not the usual range, which leagues of this machine may use, nor that of another run of these tests: what
has an id of the range is killed."""


def key(job: int, index: int = 0, attempt: int = 1) -> tuple[TaskId, int]:
    return task_id(job_id(1, job), index), attempt


@pytest.fixture
def users(tmp_path: Path) -> JobUserPool:
    found = made(tmp_path, "one")
    found.rescan()
    return found


def made(tmp_path: Path, name: str) -> JobUserPool:
    directory = tmp_path / name
    (directory / "work").mkdir(parents=True, exist_ok=True)
    return JobUserPool(RANGE, directory, tmp_path / "claims")


def test_a_job_has_one_id_and_two_jobs_have_two(users: JobUserPool) -> None:
    assert users.allocate(key(1)) == users.allocate(key(1, 1))
    assert users.allocate(key(1)) != users.allocate(key(2))
    assert users.used_count == 2


def test_all_in_use_is_told_and_what_is_released_is_used_again(users: JobUserPool) -> None:
    first = [users.allocate(key(job)) for job in range(3)]
    assert len(set(first)) == 3
    assert users.allocate(key(3)) is None
    users.release(key(1))
    users.release(key(1))
    assert users.allocate(key(4)) == first[1]


def test_an_id_is_not_used_again_before_the_others_were(users: JobUserPool) -> None:
    seen = []
    for job in range(3):
        seen.append(users.allocate(key(job)))
        users.release(key(job))
    assert len(set(seen)) == 3


def test_two_runners_of_a_machine_never_have_the_same_ids(tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    places = [tmp_path / str(number) for number in range(BLOCKS_PER_RANGE)]
    for place in places:
        place.mkdir()
    blocks = [reserve_block(RANGE, place, claims) for place in places]
    assert len({uid for block in blocks for uid in block}) == RANGE.count
    assert [reserve_block(RANGE, place, claims) for place in places] == blocks  # a runner that comes back
    (tmp_path / "late").mkdir()
    with pytest.raises(UsersMissingError, match="other runners"):
        reserve_block(RANGE, tmp_path / "late", claims)
    places[3].rmdir()
    assert reserve_block(RANGE, tmp_path / "late", claims) == blocks[3]


def test_runners_that_start_at_once_never_have_the_same_ids(tmp_path: Path) -> None:
    places = [tmp_path / str(number) for number in range(BLOCKS_PER_RANGE)]
    for place in places:
        place.mkdir()
    with ThreadPoolExecutor(BLOCKS_PER_RANGE) as pool:
        blocks = list(pool.map(lambda place: reserve_block(RANGE, place, tmp_path / "claims"), places))
    assert len({uid for block in blocks for uid in block}) == RANGE.count


def test_what_was_found_alive_keeps_its_id(tmp_path: Path) -> None:
    before = made(tmp_path, "one")
    before.rescan()
    uid = before.allocate(key(1))
    assert uid is not None
    after = made(tmp_path, "one")
    after.assign(key(1), uid)
    after.rescan()
    assert after.allocate(key(1, 1)) == uid
    assert uid not in [after.allocate(key(2)), after.allocate(key(3))]
    assert after.allocate(key(4)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_is_left_of_an_id_is_ended_before_it_is_used_again(tmp_path: Path) -> None:
    users = made(tmp_path, "one")
    block = reserve_block(RANGE, tmp_path / "one", tmp_path / "claims")
    left = tmp_path / "one" / "work" / "4503599627370496.1"
    left.mkdir()
    os.chown(left, block[0], block[0])
    with subprocess.Popen(["sleep", "3600"], user=block[1], group=block[1], extra_groups=[]) as stray:
        assert uid_of(stray.pid) == block[1]
        users.rescan()
        assert stray.wait(60) == -9
    assert users.allocate(key(1)) == block[2]  # the directory of the first is still there
    assert users.allocate(key(2)) == block[1]  # found clean when it was looked at again
    left.rmdir()
    assert users.allocate(key(3)) == block[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_an_id_left_in_shared_places_keeps_it_from_others(tmp_path: Path) -> None:
    users = made(tmp_path, "one")
    block = reserve_block(RANGE, tmp_path / "one", tmp_path / "claims")
    script = "import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))"
    made_by = {"user": block[1], "group": block[1], "extra_groups": []}
    words = ["/usr/bin/python3", "-c", script]
    segment = int(subprocess.run(words, check=True, capture_output=True, **made_by).stdout)  # type: ignore[call-overload]
    assert segment >= 0
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as left:
        try:
            os.chown(left.name, block[0], block[0])
            users.rescan()
            assert users.allocate(key(1)) == block[2]
            assert users.allocate(key(2)) is None
        finally:
            subprocess.run(["ipcrm", "-m", str(segment)], check=True)
    assert {users.allocate(key(3)), users.allocate(key(4))} == {block[0], block[1]}


def test_a_container_without_such_ids_has_none_for_jobs() -> None:
    assert has_range("         0          0 4294967295\n", UserRange())
    assert not has_range("0 1000 1\n1 100000 65536\n", UserRange())
    assert has_range("0 1000 1\n1 100000 65536\n", UserRange(30_000, 20_000))
    assert choose_user("", UserRange(UID_MAX, 1 << 32)) == "nobody"  # of no machine
    assert choose_user("per-job", RANGE) == RANGE
    assert choose_user("alice", RANGE) == "alice"


def test_ids_of_accounts_are_refused() -> None:
    with pytest.raises(UsersMissingError, match="nobody"):
        check_unused(UserRange(65_000, 1_000))
    with pytest.raises(UsersMissingError, match="between 1000"):
        check_unused(UserRange(0, 10))
