"""Registries find our own things and those of other packages by their entry points."""

import logging
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hanse.league.backend_kinds import BACKENDS
from hanse.live.policy_process.models import MODELS
from hanse.policy.queue_orders import Fifo
from hanse.registry import (
    CLUSTER_RANKERS,
    NODE_RANKERS,
    PLACERS,
    QUEUE_ORDERS,
    SIZERS,
    Registry,
    RegistryError,
    entry_points,
)
from hanse.sim.traces import FORMATS
from tests.registry.fake_packages import install

ROOT = Path(__file__).parents[2]
GROUP = "hanse.queue_orders"
REGISTRIES: tuple[Registry[Any], ...] = (
    QUEUE_ORDERS,
    PLACERS,
    CLUSTER_RANKERS,
    NODE_RANKERS,
    SIZERS,
    BACKENDS,
    FORMATS,
    MODELS,
)


def orders() -> Registry[Any]:
    """A registry that has read nothing yet."""
    return Registry("queue order", GROUP, QUEUE_ORDERS.shipped, ("name", "key"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory from which packages can be imported."""
    directory = tmp_path / "packages"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    entry_points.all_entries.cache_clear()
    yield directory
    entry_points.all_entries.cache_clear()


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_what_pyproject_declares_is_what_the_registry_ships(registry: Registry[Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert tuple(project["entry-points"][registry.group]) == registry.shipped
    for name in registry.shipped:
        assert registry.find_problem(name) == ""
        assert registry.package_of(name) == "hanse"


def test_every_group_of_pyproject_has_a_registry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["entry-points"]) == {registry.group for registry in REGISTRIES}


def test_names_of_other_packages_come_last_and_import_nothing(place: Path) -> None:
    install(place, "b-orders", {GROUP: {"later": "absent_module:Order"}})
    install(place, "a-orders", {GROUP: {"zeta": "absent_module:Order", "alpha": "absent_module:Order"}})
    assert orders().names() == (*QUEUE_ORDERS.shipped, "alpha", "zeta", "later")


def test_a_thing_of_another_package_is_loaded_once(place: Path) -> None:
    (place / "acme_orders.py").write_text(
        "from hanse.policy.queue_orders import Fifo\nclass Mine(Fifo):\n    name = 'mine'\n"
    )
    install(place, "acme", {GROUP: {"mine": "acme_orders:Mine"}})
    registry = orders()
    assert "mine" in registry
    assert registry.package_of("mine") == "acme 1.0"
    assert registry.get("mine") is registry.get("mine")
    assert registry.get("mine")().name == "mine"


def test_an_unknown_name_is_refused_with_the_known_ones_and_with_help() -> None:
    with pytest.raises(RegistryError) as refused:
        orders().get("by-colour")
    said = str(refused.value)
    assert "there is no queue order 'by-colour'" in said
    assert "fifo, fewest-remaining, short-first, priority, shortest-work" in said
    assert f"entry point in the group {GROUP}" in said
    assert (ROOT / "docs" / "contributing" / "plug-ins.md").exists()
    assert "docs/contributing/plug-ins.md" in said


def test_a_package_that_cannot_be_imported_harms_only_those_who_ask(place: Path) -> None:
    (place / "broken_orders.py").write_text("import a_module_that_is_not_there\n")
    install(place, "broken", {GROUP: {"bad": "broken_orders:Order"}}, version="2.1")
    registry = orders()
    assert registry.get("fifo") is Fifo
    said = registry.find_problem("bad")
    assert "the package broken 2.1 cannot be loaded from broken_orders:Order" in said
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in said


def test_a_thing_without_what_its_kind_needs_is_refused(place: Path) -> None:
    (place / "poor_orders.py").write_text("class Poor:\n    name = 'poor'\n")
    install(place, "poor", {GROUP: {"poor": "poor_orders:Poor"}})
    assert orders().find_problem("poor").endswith("cannot be used: poor_orders:Poor has no key")


def test_a_thing_under_a_false_name_is_refused(place: Path) -> None:
    install(place, "liar", {GROUP: {"other": "hanse.policy.queue_orders:Fifo"}})
    said = orders().find_problem("other")
    assert said.endswith("cannot be used: hanse.policy.queue_orders:Fifo calls itself 'fifo'")


def test_our_own_wins_over_another_package_and_a_warning_says_so(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(place, "rival", {GROUP: {"fifo": "rival_orders:Order"}})
    registry = orders()
    with caplog.at_level(logging.WARNING):
        assert registry.get("fifo") is Fifo
        registry.names()
    assert caplog.messages == [
        "two packages have a queue order 'fifo': that of hanse is used, that of rival 1.0 is ignored"
    ]


def test_an_installation_older_than_the_program_is_to_be_renewed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a source tree only the metadata counts."""
    monkeypatch.setattr(entry_points, "_entries_of_source", lambda: None)
    install(place, "hanse", {GROUP: {"fifo": "hanse.policy.queue_orders:Fifo"}}, version="0.0.1")
    registry = orders()
    assert registry.get("fifo") is Fifo
    assert registry.package_of("fifo") == "hanse 0.0.1"
    said = registry.find_problem("priority")
    assert "the queue order 'priority' is part of hanse" in said
    assert said.endswith("reinstall hanse")


def test_old_metadata_does_not_matter_in_a_source_tree(place: Path) -> None:
    install(place, "hanse", {GROUP: {"fifo": "somewhere_else:Fifo"}}, version="0.0.1")
    assert orders().get("priority").name == "priority"
    assert orders().get("fifo") is Fifo


def test_a_package_elsewhere_is_no_source_tree(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    assert entry_points._entries_of_source(tmp_path / "src") is None
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "hanse"\n')
    assert entry_points._entries_of_source(tmp_path / "src") == {}
    assert entry_points._entries_of_source(tmp_path / "site-packages") is None
    (tmp_path / "pyproject.toml").write_text("this is not TOML")
    assert entry_points._entries_of_source(tmp_path / "src") is None


def test_a_registered_thing_is_there_until_it_is_removed() -> None:
    registry = orders()
    remove = registry.register("mine", Fifo)
    assert registry.get("mine") is Fifo
    assert registry.names()[-1] == "mine"
    remove()
    assert "mine" not in registry


def test_help_reads_no_metadata() -> None:
    script = (
        "import sys\nfrom hanse.cli.main import hanse\n"
        "hanse(['--help'], standalone_mode=False)\n"
        "sys.exit('hanse.registry.entry_points' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_registries_reads_no_metadata() -> None:
    script = (
        "import sys\nimport hanse.league.file, hanse.cli.commands.replay, hanse.sim.seed_options\n"
        "from hanse.registry.entry_points import all_entries\n"
        "sys.exit(all_entries.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("registry", REGISTRIES[:5], ids=lambda registry: registry.kind)
def test_a_policy_is_added_in_three_files(registry: Registry[Any]) -> None:
    """The files that list all of ours: the classes, their entries, their names in order."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").rglob("*.py"), ROOT / "pyproject.toml"]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    known = [
        path
        for path, text in texts.items()
        if all(f'"{name}"' in text or f"\n{name} = " in text for name in registry.shipped)
    ]
    modules = {registry.get(name).__module__.replace(".", "/") for name in registry.shipped}
    classes = {f"src/{module}.py" for module in modules}
    assert set(known) - classes <= {"pyproject.toml", "src/hanse/registry/policies.py"}
    assert {"pyproject.toml", "src/hanse/registry/policies.py"} <= set(known)
