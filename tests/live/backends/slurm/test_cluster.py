"""A Slurm cluster that others use too: its nodes, its room, its arrays, its limits."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import Desk, launch, read, with_desk
from tests.live.backends.places import run, shell
from tests.live.backends.slurm.fixture import NODE_CPUS, NODE_MEMORY_MIB, Slurm, missing, slurm_clusters
from tests.live.backends.slurm.places import backend_on, place_on, until

MIB = 1 << 20
DRIVERS = pytest.mark.parametrize("driver", ["cli", "rest"])


def discovered(slurm: Slurm, place: Path, driver: str = "cli", **changes: object) -> tuple[NodeConfig, ...]:
    async def ask() -> tuple[NodeConfig, ...]:
        backend = backend_on(slurm, place, (), driver, **changes)
        nodes = await backend.capacity()
        await backend.close()
        return nodes

    return asyncio.run(ask())


@DRIVERS
def test_nodes_and_what_is_true_of_them_come_from_slurm(slurm: Slurm, place: Path, driver: str) -> None:
    nodes = discovered(slurm, place, driver)
    assert [dict(node.attributes)["slurm.node"] for node in nodes] == sorted(slurm.nodes)
    plain = Resources(NODE_CPUS * 1_000, NODE_MEMORY_MIB * MIB)
    rich = Resources(plain.cpu, plain.memory, 2, (("fpga", 3),))
    assert [node.capacity for node in nodes] == [rich, plain, plain]
    assert dict(nodes[0].attributes) == {
        "slurm.node": slurm.nodes[0],
        "slurm.partition.batch": True,
        "slurm.partition.small": True,
        "slurm.feature.big": True,
        "slurm.feature.ssd": True,
        "arch": "x86_64",
        "os": "linux",
    }
    assert all(node.attributes == tuple(sorted(node.attributes)) for node in nodes)


def test_a_partition_limits_the_nodes(slurm: Slurm, place: Path) -> None:
    nodes = discovered(slurm, place, partition="small")
    assert [dict(node.attributes)["slurm.node"] for node in nodes] == [slurm.nodes[0]]
    with pytest.raises(OSError, match="no nodes"):
        discovered(slurm, place, partition="nowhere")


@DRIVERS
def test_room_of_others_is_withheld_and_given_back(slurm: Slurm, place: Path, driver: str) -> None:
    nodes = discovered(slurm, place)

    async def story(desk: Desk) -> None:
        options = ("-w", slurm.nodes[0], "-c", "3", "--mem=500", "--gres=gpu:1,fpga:2")
        foreign = slurm.submit_foreign("sleep 3600", *options)
        await until(lambda: bool(desk.room), "something is withheld")
        assert desk.room == {0: Resources(3_000, 500 * MIB, 1, (("fpga", 2),))}
        slurm.run("scancel", foreign)
        await until(lambda: desk.room[0] == Resources(), "it is ours")
        assert list(desk.room) == [0]

    with_desk(lambda: backend_on(slurm, place, nodes, driver), story)


@DRIVERS
def test_our_own_tasks_withhold_only_what_slurm_rounds_up(slurm: Slurm, place: Path, driver: str) -> None:
    nodes = discovered(slurm, place)

    async def story(desk: Desk) -> None:
        whole = Resources(2_000, 64 * MIB, 1)
        desk.start(launch(shell("exec sleep 3600"), 0, size=whole))
        await desk.start_of(0)
        desk.start(launch(shell("exec sleep 3600"), 1, size=Resources(2_500, 64 * MIB - 1)))
        await desk.start_of(1)
        await until(lambda: bool(desk.room), "something is withheld")
        assert desk.room == {0: Resources(500, 1)}
        for index in (0, 1):
            desk.stop(index, grace=0)
            await desk.end_of(index)
        await until(lambda: desk.room[0] == Resources(), "nothing is")
        assert list(desk.room) == [0]

    with_desk(lambda: backend_on(slurm, place, nodes, driver), story)


@DRIVERS
def test_jobs_of_others_are_never_touched(slurm: Slurm, place: Path, driver: str) -> None:
    """Every request to end a job that the controller has heard of named a job of ours: not one of the same
    user, nor one that is called almost like ours."""
    nodes = discovered(slurm, place)
    log = slurm.base / "log" / "slurmctld.log"
    before = log.stat().st_size
    foreign = [
        slurm.submit_foreign("sleep 3600", f"--job-name={name}", "--uid=65534", "--gid=65534")
        for name in ("hanse", "hanse:north:00000000:1-7.0#1", "hanse:north:x", "1-7.0#1")
    ]

    async def story(desk: Desk) -> None:
        for index in range(60):  # more than there is room for: some wait
            desk.start(launch(shell("exec sleep 3600"), index))
        await desk.start_of(0)
        for index in range(60):
            desk.stop(index, grace=0)
        for index in range(60):
            assert (await desk.end_of(index)).outcome is Outcome.CANCELLED
            desk.forget(index)
        await until(lambda: names() == [], "our jobs are gone")

    def names() -> list[str]:
        lines = slurm.run("squeue", "-h", "-o", "%F %j").splitlines()
        return [line for line in lines if line.split()[0] not in foreign]

    with_desk(lambda: backend_on(slurm, place, nodes, driver), story)
    lines = slurm.run("squeue", "-h", "-t", "all", "-r", "-o", "%F %j").splitlines()
    named = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}
    with log.open("rb") as file:
        file.seek(before)
        killed = re.findall(r"REQUEST_KILL_JOB JobId=(\d+)", file.read().decode())
    assert killed, "none was cancelled in Slurm: nothing is proved"
    ours = [name for name in (named.get(number, "") for number in killed) if name.startswith("hanse:north:")]
    assert len(ours) == len(killed)
    assert not set(killed) & set(foreign)
    assert [slurm.state_of(number) for number in foreign] == ["RUNNING"] * len(foreign)
    slurm.run("scancel", *foreign)


def test_equal_tasks_of_one_turn_are_one_array(slurm: Slurm, place: Path) -> None:
    nodes = discovered(slurm, place)
    script = shell('echo "$HANSE_JOB $HANSE_TASK $HANSE_ATTEMPT $HANSE_CLUSTER $HANSE_NODE $HANSE_CPUS"')

    async def story(desk: Desk) -> None:
        for index in (*range(5), 9):
            desk.start(launch(script, index))
        desk.start(launch(script, 7, size=Resources(2_000, 64 * MIB)))
        for index in (*range(5), 7, 9):
            assert (await desk.end_of(index)).outcome is Outcome.SUCCEEDED
            cpus = 2 if index == 7 else 1
            assert await read(desk.backend, index) == f"1-7 {index} 1 north 0 {cpus}\n".encode()

    with_desk(lambda: backend_on(slurm, place, nodes), story)
    lines = slurm.run("squeue", "-h", "-t", "all", "-r", "-o", "%F %j").splitlines()
    instance = (place / "shared" / "instance").read_text(encoding="ascii")
    arrays = [line.split() for line in lines if instance in line]
    assert len(arrays) == 7
    assert len({number for number, _ in arrays}) == 2
    assert {name.rpartition(":")[2] for _, name in arrays} == {"1-7.0..4#1+1-7.9#1", "1-7.7#1"}


def test_what_a_program_is_given(slurm: Slurm, place: Path) -> None:
    """Arguments and variables of all sorts, its directory, its user, its node."""
    nodes = discovered(slurm, place)
    odd = 'it\'s "odd"; $HOME `id` \\ * \n\tend'
    script = 'printf "%s|" "$@" "$ODD" "$(id -un)" "$SLURMD_NODENAME" "$PWD" "$HOME" "$SLURM_GPUS_ON_NODE"'

    async def story(desk: Desk) -> None:
        payload = run("/bin/sh", "-c", script, "x", odd, "", "a=b", env=(("ODD", odd),), workdir="/usr")
        end = await desk.run(launch(payload, size=Resources(1_000, 64 * MIB, 1)))
        assert end.outcome is Outcome.SUCCEEDED
        words = (await read(desk.backend)).decode().split("|")
        assert words == [odd, "", "a=b", odd, "nobody", slurm.nodes[0], "/usr", "/usr", "1", ""]

    with_desk(lambda: backend_on(slurm, place, nodes), story)


def test_a_program_that_is_not_there_fails_as_shells_say(slurm: Slurm, place: Path) -> None:
    nodes = discovered(slurm, place)

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(run("/no/such/program")))
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, 127)
        end = await desk.run(launch(run("/bin/true", workdir="/no/such/directory"), 1))
        assert end.outcome is Outcome.FAILED

    with_desk(lambda: backend_on(slurm, place, nodes), story)


def test_what_a_task_leaves_behind_is_ended_with_it(slurm: Slurm, place: Path) -> None:
    nodes = discovered(slurm, place)

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell("sleep 4242 & (trap '' TERM; exec sleep 4242) & exit 3")))
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, 3)
        await until(lambda: left() == [], "the killed are gone, too")

    with_desk(lambda: backend_on(slurm, place, nodes), story)


def left() -> list[Path]:
    """What it started and has not ended."""
    return [path for path in Path("/proc").glob("[0-9]*") if arguments(path) == b"sleep\x004242\x00"]


def arguments(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def limited() -> Iterator[Slurm]:
    """A cluster that keeps jobs within their memory."""
    if why := missing():
        pytest.skip(why)
    if not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("Slurm is set up for control groups of version 1 here, and there are none")
    with slurm_clusters("limited", cgroups=True) as (cluster,):
        yield cluster


def test_memory_is_limited_and_measured(limited: Slurm) -> None:
    hungry = shell("exec tail /dev/zero")

    async def story(desk: Desk) -> None:
        end = await desk.run(launch(hungry))
        assert (end.outcome, end.exit_code, end.note) == (Outcome.FAILED, -9, "out of memory")
        assert end.usage is not None
        # What is measured is the resident set: it has pages of libraries that were charged to others, too.
        assert 32 * MIB < end.usage.memory <= (64 + 4) * MIB
        end = await desk.run(launch(shell("exit 0"), 1))
        assert end.outcome is Outcome.SUCCEEDED

    with place_on(limited) as place:
        nodes = discovered(limited, place)
        with_desk(lambda: backend_on(limited, place, nodes), story)
