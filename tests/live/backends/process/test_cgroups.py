"""Which control groups are chosen and what is written into them, from the texts that kernels give."""

from pathlib import Path

import pytest

from hanse.live.backends.process.cgroups import (
    DAEMON_GROUP,
    CgroupBase,
    CgroupMount,
    TaskLimits,
    find_v1,
    find_v2,
    group_directory,
    group_name,
    limit_settings,
    read_mounts,
    read_own_groups,
)
from hanse.live.backends.process.default_memory import MemoryDefault
from hanse.live.backends.process.launch_requests import LaunchRefusal, StartRequestEncoder, TaskUser
from hanse.model.program import Program, encode_program
from hanse.model.resources import Resources
from tests.live.backends.desk import launch

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
31 22 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw
32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:6 - cgroup cgroup rw,cpu,cpuacct
33 22 0:29 /docker/abc /sys/fs/cgroup/with\\040space rw - cgroup cgroup rw,memory
a line of nonsense
"""


def test_the_mounted_hierarchies_are_read() -> None:
    assert list(read_mounts(MOUNTS)) == [
        CgroupMount(2, Path("/sys/fs/cgroup/unified"), "/", ()),
        CgroupMount(1, Path("/sys/fs/cgroup/cpu,cpuacct"), "/", ("rw", "cpu", "cpuacct")),
        CgroupMount(1, Path("/sys/fs/cgroup/with space"), "/docker/abc", ("rw", "memory")),
    ]


def test_our_own_groups_are_read() -> None:
    own = read_own_groups("4:memory:/docker/abc/x\n1:cpu,cpuacct:/\n0::/user.slice/a:b\n")
    assert own == {"memory": "/docker/abc/x", "cpu": "/", "cpuacct": "/", "": "/user.slice/a:b"}


@pytest.mark.parametrize(
    ("root", "group", "expected"),
    [
        ("/", "/", "/g"),
        ("/", "/a/b", "/g/a/b"),
        ("/docker/abc", "/docker/abc", "/g"),
        ("/docker/abc", "/docker/abc/x", "/g/x"),
        ("/docker/abc", "/docker/abcd", "/g/docker/abcd"),
        ("/", "/../../elsewhere", "/g"),
    ],
)
def test_where_a_group_is_seen(root: str, group: str, expected: str) -> None:
    assert group_directory(CgroupMount(2, Path("/g"), root, ()), group) == Path(expected)


def test_settings_say_what_was_asked() -> None:
    size = Resources(cpu=1_500, memory=(64 << 20) + 5)
    assert limit_settings("c", size, 9) == ["cpu.cfs_quota_us=150000"]
    assert limit_settings("m", size, 9) == [
        f"memory.limit_in_bytes={64 << 20}",
        f"?memory.memsw.limit_in_bytes={64 << 20}",
    ]
    assert limit_settings("p", size, 9) == ["pids.max=9"]
    assert limit_settings("u", size, 9) == [
        "cpu.max=150000 100000",
        f"memory.max={64 << 20}",
        "?memory.swap.max=0",
        "?memory.oom.group=1",
        "pids.max=9",
    ]


def test_nothing_asked_is_nothing_promised() -> None:
    assert limit_settings("c", Resources(), 9) == ["cpu.shares=2"]
    assert limit_settings("m", Resources(), 9) == []
    assert limit_settings("u", Resources(), 9) == ["cpu.weight=1", "pids.max=9"]
    assert limit_settings("c", Resources(cpu=1), 9) == ["cpu.cfs_quota_us=1000"]  # the kernel takes no less


def test_version_1_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    mounts = (CgroupMount(1, tmp_path / "pids", "/", ("rw", "pids")),)
    found = find_v1(mounts, {}, "hanse-x")
    assert found.bases == (CgroupBase("p", tmp_path / "pids" / "hanse-x"),)
    assert found.warnings == (
        "not limited or measured here, for want of a control group: cpu, cpuacct, memory",
    )
    with pytest.raises(OSError, match="no hierarchy"):
        find_v1((), {}, "hanse-x")


def test_one_hierarchy_for_two_controllers_is_used_once(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "memory", "pids"):
        (tmp_path / name).mkdir()
    mounts = tuple(CgroupMount(1, place, "/", tuple(place.name.split(","))) for place in tmp_path.iterdir())
    found = find_v1(mounts, {}, "x")
    assert sorted(base.role for base in found.bases) == ["c", "m", "p"]
    assert found.warnings == ()


def version_2(tmp_path: Path, controllers: str) -> tuple[CgroupMount, ...]:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    return (CgroupMount(2, tmp_path, "/", ()),)


def test_version_2_needs_all_controllers(tmp_path: Path) -> None:
    found = find_v2(version_2(tmp_path, "cpuset cpu io memory pids\n"), {"": "/"}, "hanse-x")
    assert found == TaskLimits("v2", (CgroupBase("u", tmp_path / "hanse-x"),))
    with pytest.raises(OSError, match="no controller for memory, pids"):
        find_v2(version_2(tmp_path, "cpu hugetlb\n"), {"": "/"}, "hanse-x")
    with pytest.raises(OSError, match="not mounted"):
        find_v2((), {}, "hanse-x")


def test_a_restarted_daemon_of_version_2_finds_the_groups_of_the_first(tmp_path: Path) -> None:
    """It starts in the group that the first one moved into: the tasks' groups are beside that."""
    mounts = version_2(tmp_path, "")
    unit = tmp_path / "unit"
    (unit / DAEMON_GROUP).mkdir(parents=True)
    (unit / "cgroup.controllers").write_text("cpu memory pids")
    first = find_v2(mounts, {"": "/unit"}, "hanse-x")
    assert find_v2(mounts, {"": f"/unit/{DAEMON_GROUP}"}, "hanse-x") == first


def test_making_version_2_moves_the_daemon_out_of_the_way(tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    for group in (unit, unit / DAEMON_GROUP, unit / "hanse-x"):
        group.mkdir()
        (group / "cgroup.type").write_text("domain\n")
    TaskLimits("v2", (CgroupBase("u", unit / "hanse-x"),)).make_directories()
    assert (unit / DAEMON_GROUP / "cgroup.procs").read_text().isdecimal()
    for group in (unit, unit / "hanse-x"):
        assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_two_runners_have_different_groups() -> None:
    assert group_name(Path("/a")) != group_name(Path("/b"))
    assert group_name(Path("/a")) == group_name(Path("/a"))


def test_texts_that_no_program_can_be_given_are_refused(tmp_path: Path) -> None:
    encoder = StartRequestEncoder(
        tmp_path, "north", TaskUser(), TaskLimits("v1"), (), 1, 1, MemoryDefault(())
    )
    for command in (Program(("a\0b",)), Program(("a",), (("X=Y", "1"),)), Program(("a",), (), "x\0")):
        assert encoder.encode(launch(encode_program(command))) == LaunchRefusal(
            "the command has a NUL character or a bad variable name"
        )
    assert isinstance(encoder.encode(launch(encode_program(Program(("a",))))), bytes)
