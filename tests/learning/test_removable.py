"""A learned policy is one folder: few lines name it elsewhere, nobody imports it, Hanse works without it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.cli.commands import learning
from hanse.live.policy_process.models import DEFAULT_MODEL, MODELS, load_model

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hanse"
FOLDER = SOURCE / "learning" / "edge"
MENTIONS_MAX = 3
"""Lines outside the folder that go when the policy goes."""
TEXTS = (".py", ".toml", ".c", ".h", ".typed")
ROOMS = ("api", "cli", "client", "core", "live", "model", "policy", "sdk", "security", "sim")

IMPORT_ALL = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
print(*sorted(name for name in sys.modules if name.startswith(("hanse.learning", "torch"))))
"""
"""Program that imports the modules it is given, and prints which modules of learned policies came along."""
WITHOUT = """
import sys
sys.modules["hanse.learning"] = None  # importing it raises ModuleNotFoundError
from hanse.cli.main import run
from hanse.live.policy_process.models import load_model
print(load_model("edge"))
assert run(["--help"]) == 0
assert run(["train", "--help"]) == 0
sys.exit(run(["train", "edge"]))
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def modules_of(room: str) -> list[str]:
    return [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((SOURCE / room).rglob("*.py"))
        if path.name != "__main__.py"
    ]


def test_a_few_lines_outside_the_folder_name_it() -> None:
    texts = [
        path for path in sorted(SOURCE.rglob("*")) if path.suffix in TEXTS and FOLDER not in path.parents
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*texts, ROOT / "pyproject.toml"]
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if re.search(r"learning[./]edge", line)
    ]
    assert len(found) <= MENTIONS_MAX, "\n".join(found)
    named = "\n".join(found)
    for target in (*MODELS.values(), *learning.LEARNED_POLICIES.values()):
        assert target in named


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_of_a_room_imports_a_learned_policy(room: str) -> None:
    done = run_python(IMPORT_ALL, *modules_of(room))
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split()


def test_hanse_works_without_learned_policies() -> None:
    done = run_python(WITHOUT)
    assert done.returncode == 2, done.stderr
    assert "the model 'edge' is not installed" in done.stdout
    assert "No such command 'edge'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_trained_policy_runs_without_torch() -> None:
    rest = [name for name in modules_of("learning") if ".training" not in name]
    done = run_python(IMPORT_ALL, *rest, MODELS[DEFAULT_MODEL].partition(":")[0])
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "hanse.learning.edge.network.advisor" in loaded
    assert not [name for name in loaded if name.startswith("torch")]


def test_a_model_that_is_not_there_is_refused_with_a_reason() -> None:
    assert load_model("weather") == "there is no model 'weather'; there are edge"


def test_each_model_loads() -> None:
    for name in MODELS:
        assert callable(load_model(name))
