"""A learned policy is one folder: few lines name it elsewhere, nobody imports it, Hanse works without it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.cli.commands.learning import LEARNED_POLICIES
from hanse.live.policy_process.models import MODELS, load_model

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hanse"
FOLDERS = sorted(path.parent for path in (SOURCE / "learning").glob("*/__init__.py"))
MENTIONS_MAX = 3
"""Lines outside the folder that go when the policy goes."""
TEXTS = (".py", ".toml", ".c", ".h", ".typed")
ROOMS = sorted({path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"learning"})

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
from hanse.cli.commands.learning import LEARNED_POLICIES
from hanse.live.policy_process.models import MODELS, load_model
for model in MODELS.shipped:
    print(load_model(model))
for words in (["--help"], ["train", "--help"]):
    assert run(words) == 0
for policy in LEARNED_POLICIES:
    assert run(["train", policy]) == 2
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


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_few_lines_outside_the_folder_name_it(folder: Path) -> None:
    texts = [
        path for path in sorted(SOURCE.rglob("*")) if path.suffix in TEXTS and folder not in path.parents
    ]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*texts, ROOT / "pyproject.toml"]
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if re.search(rf"learning[./]{folder.name}\b", line)
    ]
    assert len(found) <= MENTIONS_MAX, "\n".join(found)


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_of_a_room_imports_a_learned_policy(room: str) -> None:
    done = run_python(IMPORT_ALL, *modules_of(room))
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split()


def test_hanse_works_without_learned_policies() -> None:
    done = run_python(WITHOUT)
    assert done.returncode == 0, done.stderr
    for name in MODELS.shipped:
        assert f"learned model '{name}'" in done.stdout
    for name in LEARNED_POLICIES:
        assert f"No such command '{name}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there_is_refused_with_a_reason() -> None:
    told = load_model("weather")
    assert isinstance(told, str)
    assert told.startswith("there is no learned model 'weather'; choose one of: ")
