"""The engine of a replay: how it is chosen, what is left to the machines, and the library itself."""

import json
import os
import shutil
import subprocess
import sys
import zlib
from ctypes import CDLL
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hanse.cli.commands.replay import main
from hanse.policy.kernels.shared_library import open_library, source_names
from hanse.sim.replay import compiled as compiled_module
from hanse.sim.replay.compiled import loader
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.metrics import TIME_FIELDS
from hanse.sim.replay.registry import select_policies
from hanse.sim.replay.run_records import (
    ENGINES,
    ReplayError,
    ReplaySettings,
)
from tests.sim.replay.compiled_runs import FOLDER, SECOND, made, needs_compiler

pytestmark = needs_compiler


def test_all_engines_are_chosen_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, settings = made([0], [[SECOND]]), ReplaySettings(nodes=2, clusters=1, brokers=1)
    assert ENGINES == ("auto", "compiled", "machines")
    assert run_hanse(workload, settings).engine == "compiled"
    assert run_hanse(workload, msgspec.structs.replace(settings, engine="machines")).engine == "machines"
    monkeypatch.setattr(loader, "LOAD_PROBLEM", "_plain.so is not built")
    assert run_hanse(workload, settings).engine == "machines"
    compiled = msgspec.structs.replace(settings, engine="compiled")
    with pytest.raises(ReplayError, match=r"is not built.*--engine machines"):
        run_hanse(workload, compiled)
    with pytest.raises(ReplayError, match=r"is not built.*--engine machines"):
        select_policies(["hanse"], compiled)
    assert "unknown engine" in msgspec.structs.replace(settings, engine="steam").find_problem()


def test_what_does_not_fit_is_left_to_the_machines(tmp_path: Path) -> None:
    settings = ReplaySettings(nodes=2, clusters=1, brokers=1)
    fits = made([0, 1], [[SECOND], [SECOND]])
    assert compiled_module.find_objection(fits, settings) == ""
    assert "faults" in compiled_module.find_objection(
        fits, msgspec.structs.replace(settings, faults=str(tmp_path))
    )
    packed = msgspec.structs.replace(settings, node_ranker="best-fit")
    assert "node ranker best-fit" in compiled_module.find_objection(fits, packed)
    assert "no node ranker 'worst'" in compiled_module.find_objection(
        fits, msgspec.structs.replace(settings, node_ranker="worst")
    )
    assert "too few" in compiled_module.find_objection(fits, msgspec.structs.replace(settings, brokers=3))
    wide = msgspec.structs.replace(settings, nodes=9_000)
    assert "nodes in a cluster" in compiled_module.find_objection(fits, wide)
    for workload, word in (
        (made([], []), "no job"),
        (msgspec.structs.replace(fits, offset=[0, 0, 2]), "without a task"),
        (msgspec.structs.replace(fits, offset=[0, 1, 1]), "numbered"),
        (msgspec.structs.replace(fits, arrival=[1, 0]), "order of arrival"),
        (msgspec.structs.replace(fits, duration=[-1, 1]), "impossible duration"),
        (msgspec.structs.replace(fits, estimate=[1 << 60, 1]), "impossible duration"),
        (msgspec.structs.replace(fits, duration=[1 << 60, 1]), "too long"),
    ):
        assert word in compiled_module.find_objection(workload, settings)


def test_a_library_of_other_sources_is_refused(tmp_path: Path) -> None:
    assert open_library(tmp_path, "_plain", CDLL) == (None, "_plain.so is not built")
    for file in [*FOLDER.glob("*.[ch]"), FOLDER / "_plain.so"]:
        shutil.copy(file, tmp_path)
    assert open_library(tmp_path, "_plain", CDLL)[1] == ""
    (tmp_path / "post.h").write_text("/* another one */", encoding="ascii")
    assert "built from other sources" in open_library(tmp_path, "_plain", CDLL)[1]
    elsewhere = tmp_path / "broken"  # never written in place: this process has it open
    elsewhere.mkdir()
    (elsewhere / "_plain.so").write_bytes(b"no library")
    assert "does not load" in open_library(elsewhere, "_plain", CDLL)[1]


UNDER_WATCH = """
import sys
from hanse.sim.replay.hanse_policy import run_hanse
from hanse.sim.replay.compiled.outcome_diff import describe_difference
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload
for starts in (False, True):
    if starts:
        from hanse.sim.replay import hanse_policy as machines
        machines.UNREPORTED_TASKS_MAX = 0
    tasks = [1 + job % 17 for job in range(60)]
    offset = [sum(tasks[:job]) for job in range(61)]
    duration = [(task * 7919) % 3_000_000 for task in range(offset[-1])]
    workload = ReplayWorkload("w", [job * 40_000 for job in range(60)], offset, duration, [1_500_000] * 60,
                        [job % 5 for job in range(60)])
    for order in ("fewest-remaining", "priority"):
        outcomes = [run_hanse(workload, ReplaySettings(nodes=30, clusters=3, brokers=3, order=order,
                    engine=engine, reserve_percent=10.0, short_cutoff_us=1_000_000))
                    for engine in ("machines", "compiled")]
        assert describe_difference(*outcomes) == "", describe_difference(*outcomes)
        run_hanse(workload, ReplaySettings(nodes=30, clusters=3, brokers=3), lambda _: False)
print("clean")
"""


def test_under_the_sanitizers_it_is_clean(tmp_path: Path) -> None:
    """Compiled with address and undefined-behaviour checks, in a process of its own."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    copy = tmp_path / "hanse"
    shutil.copytree(FOLDER.parents[2], copy, ignore=shutil.ignore_patterns("__pycache__"))
    folder = copy / "sim" / "replay" / "compiled"
    crc = 0
    for name in source_names(FOLDER):
        crc = zlib.crc32((folder / name).read_bytes(), crc)
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1"]
    flags = ["-shared", "-fPIC", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    sources = sorted(str(file) for file in folder.glob("*.c"))
    command = [
        compiler,
        *checks,
        *flags,
        f"-DHANSE_SOURCE_CRC={crc}u",
        *sources,
        "-o",
        str(folder / "_plain.so"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip("this compiler has no sanitizers")
    assert done.returncode == 0, done.stderr
    found = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    preload = " ".join(each.stdout.strip() for each in found)
    variables = {
        **os.environ,
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(tmp_path),
    }
    ran = subprocess.run(
        [sys.executable, "-c", UNDER_WATCH], env=variables, capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "clean", ran.stderr[-3_000:]


def test_a_user_chooses_the_engine_and_gets_equal_figures(tmp_path: Path) -> None:
    trace, out, grid = tmp_path / "made.tr", tmp_path / "out.json", tmp_path / "grid.jsonl"
    trace.write_text("".join(f"{job * 0.2} 3 1.0 0.5 1.0 1.5\n" for job in range(40)), encoding="ascii")
    shared = [str(trace), "--nodes", "6", "--clusters", "2", "--policy", "hanse"]
    found = {}
    for name in ENGINES:
        done = CliRunner().invoke(
            main, ["replay", *shared, "--brokers", "2", "--engine", name, "--json", str(out)]
        )
        assert done.exit_code == 0, done.output
        found[name] = json.loads(out.read_bytes())[0]
    assert [found[name]["engine"] for name in ENGINES] == ["compiled", "compiled", "machines"]
    one, *others = ({**figures, **dict.fromkeys(TIME_FIELDS)} for figures in found.values())
    assert others == [one, one]
    for name, before in (("machines", 0), ("compiled", 1)):  # what one engine has done the other need not do
        done = CliRunner().invoke(
            main, ["sweep", *shared, "--brokers", "2", "--engine", name, "--out", str(grid)]
        )
        assert f"1 runs, {before} of them" in done.output
    assert [json.loads(line)["engine"] for line in grid.read_bytes().splitlines()] == ["machines"]


def test_where_there_is_a_compiler_it_is_built() -> None:
    assert compiled_module.load_problem() == "", (
        f"{compiled_module.load_problem()} (python setup.py build_kernel)"
    )
