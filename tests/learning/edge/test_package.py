"""The parts of the package stand in layers, and all but training run without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.learning import edge
from hanse.live.policy_process.models import load_model
from hanse.registry import SIZERS

FOLDER = Path(str(edge.__file__)).parent
BELOW = {
    "env": (),
    "policies": ("env",),
    "network": ("env", "policies"),
    "players": ("env", "policies", "network"),
    "evaluation": ("env", "policies", "network", "players"),
    "training": ("env", "policies", "network", "players"),
}
"""Parts that each part may import, beside itself."""
WITHOUT_TORCH = """
import sys
from importlib import import_module
sys.modules["torch"] = None  # importing it raises ModuleNotFoundError
for name in sys.argv[1:]:
    import_module(name)
"""


def imported_parts(path: Path) -> set[str]:
    """The parts of the package that a module imports."""
    names = [
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None
    ]
    prefix = f"{edge.__name__}."
    return {name.removeprefix(prefix).partition(".")[0] for name in names if name.startswith(prefix)}


def test_each_part_is_known() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/__init__.py")} == set(BELOW)


@pytest.mark.parametrize("part", BELOW)
def test_a_part_imports_only_those_below(part: str) -> None:
    for path in sorted((FOLDER / part).glob("*.py")):
        assert imported_parts(path) <= {part, *BELOW[part]}, path.name


def test_all_but_training_runs_without_torch() -> None:
    names = [
        ".".join((edge.__name__, *path.relative_to(FOLDER).with_suffix("").parts))
        for path in sorted(FOLDER.rglob("*.py"))
        if path.parent.name != "training"
    ]
    assert f"{edge.__name__}.cli" in names
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_the_shipped_model_is_the_one_of_the_policy_process() -> None:
    model = load_model(SIZERS.get("network").model)
    assert type(model).__module__.startswith(f"{edge.__name__}.")
