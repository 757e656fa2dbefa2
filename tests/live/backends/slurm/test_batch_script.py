"""The script of a job, run without Slurm."""

import subprocess
from pathlib import Path

import msgspec

from hanse.live.backends.place_variables import rank_text
from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.batch_script import BatchScriptWriter
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.model.ids import TaskId
from hanse.model.messages import TaskPlace
from hanse.model.program import Program
from tests.live.backends.desk import launch
from tests.live.backends.places import run


class Scripted:
    """Runs a task's script as Slurm would."""

    def __init__(self, place: Path) -> None:
        self.shared = SharedDirectory(place / "shared", TaskUser())
        self.shared.make_directories()
        self.maker = BatchScriptWriter(self.shared.path, "north")
        self.key = (TaskId(7), 1)

    def run(self, *argv: str, job: int = 1) -> int:
        command = Program(argv)
        text = self.maker.write_script(launch(run(*argv)), command, [self.key])
        env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": str(job)}
        return subprocess.run(["/bin/sh"], input=text.encode(), env=env, check=False, timeout=60).returncode


def test_a_script_runs_its_task_once(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    scripted.shared.write_orders(scripted.key, "run")
    program = ("/bin/sh", "-c", f"echo x >> {tmp_path}/log; exit 3")
    assert scripted.run(*program) == 3
    assert scripted.run(*program, job=2) == 0
    assert (tmp_path / "log").read_text() == "x\n"
    known = scripted.shared.read_records(scripted.key)
    assert known.begin is not None
    assert (known.begin.kind, known.begin.job, known.has_refusal) == ("ran", 1, True)
    assert known.end is not None
    assert (known.end.cause, known.end.code, known.end.ended_externally) == (0, 3, False)


def test_a_script_does_not_run_what_was_revoked_or_forgotten(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    program = ("/bin/sh", "-c", f"echo x >> {tmp_path}/log")
    assert scripted.run(*program) == 0  # it has no orders: it is forgotten
    scripted.shared.drop_records(scripted.key)
    scripted.shared.write_orders(scripted.key, "run")
    scripted.shared.revoke(scripted.key)
    assert scripted.run(*program) == 0
    assert not (tmp_path / "log").exists()
    scripted.shared.drop_records(scripted.key)
    scripted.shared.write_orders(scripted.key, "run")
    scripted.shared.write_lease(1)
    assert scripted.run(*program) == 0
    began = scripted.shared.read_records(scripted.key).begin
    assert began is not None
    assert began.kind == "unstarted"
    assert not (tmp_path / "log").exists()


def test_a_script_that_cannot_write_its_records_says_so(tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    scripted.shared.write_orders(scripted.key, "run")
    scripted.shared.records.rmdir()
    assert scripted.run("/bin/true") == 75


def test_each_task_of_an_array_is_told_its_rank(tmp_path: Path) -> None:
    """Tasks of a gang on one node are one array: they share a script and differ in their ranks."""
    scripted = Scripted(tmp_path)
    gang = TaskPlace("main", 2, 4, 0, 2, 1, 2, "n1:2,n2:2", "n1", 20_007)
    keys = [(TaskId(7), 1), (TaskId(8), 1)]
    launches = [
        msgspec.structs.replace(launch(run("env"), task), place=place)
        for (task, _), place in zip(
            keys, (gang, msgspec.structs.replace(gang, rank=3, local_rank=1)), strict=True
        )
    ]
    program = Program(
        ("/bin/sh", "-c", f"env | grep ^HANSE_ > {tmp_path}/$HANSE_RANK"), (("HANSE_HOSTS", "x"),)
    )
    text = scripted.maker.write_script(launches[0], program, keys, [rank_text(one) for one in launches])
    for at, key in enumerate(keys):
        scripted.shared.write_orders(key, "run")
        env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": str(at)}
        subprocess.run(["/bin/sh"], input=text.encode(), env=env, check=True, timeout=60)
    told = [dict(line.split("=", 1) for line in (tmp_path / rank).read_text().splitlines()) for rank in "23"]
    assert [one["HANSE_LOCAL_RANK"] for one in told] == ["0", "1"]
    assert {(one["HANSE_HOSTS"], one["HANSE_MASTER_ADDR"], one["HANSE_NODE_RANK"]) for one in told} == {
        ("n1:2,n2:2", "n1", "1")
    }
