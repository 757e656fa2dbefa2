"""A backend of another package: its kind is all that the league file, the daemons and the commands know."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.cli.commands.up import _node_count_text
from hanse.cli.isolation_notice import backend_notices
from hanse.league.backend_kinds import BACKENDS, BackendKind
from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data
from hanse.live.backends.factory import make_backend
from hanse.live.backends.null import NullBackend
from hanse.live.config.home_permissions import _backend_directories
from hanse.model.field_descriptions import FileField
from hanse.model.field_reader import FieldReader, read_text
from hanse.model.problem import Problem

ROOT = Path(__file__).parents[2]


class RaySettings(msgspec.Struct, frozen=True):
    """Settings of the example."""

    address: str = "auto"
    scratch: str = ""


def read(fields: FieldReader) -> RaySettings:
    return RaySettings(fields.read("address", read_text, "auto"), fields.read("scratch", read_text, ""))


RAY = BackendKind(
    name="ray",
    make=lambda entry, _: NullBackend(entry.nodes),
    title="Ray",
    settings=RaySettings,
    fields=(
        FileField("address", "text", "auto", "", "Address.", "address: auto"),
        FileField("scratch", "text", "", "", "Directory.", "scratch: /scratch"),
    ),
    read=read,
    to_data=lambda settings: {"address": settings.address, "scratch": settings.scratch},
    directories=lambda settings, cluster: (("'scratch'", Path(settings.scratch) / cluster),),
    discovers_nodes=True,
    task_user="nobody",
    isolation_notice="on Ray all share one process.",
)


@pytest.fixture
def ray() -> Iterator[None]:
    remove = BACKENDS.register("ray", RAY)
    yield
    remove()


def league(backend: object, **cluster: Any) -> LeagueConfig | tuple[Problem, ...]:
    entry = {"name": "north", "backend": backend, **cluster}
    return league_from_data({"brokers": [{"name": "b1"}], "clusters": [entry]})


@pytest.mark.usefixtures("ray")
def test_the_league_file_reads_and_writes_the_settings_of_any_kind() -> None:
    found = league({"kind": "ray", "address": "10.0.0.1", "scratch": "/s", "user": "me"})
    assert isinstance(found, LeagueConfig)
    backend = found.clusters[0].backend
    assert (backend.kind, backend.settings) == ("ray", RaySettings("10.0.0.1", "/s"))
    assert backend.user == "me"
    assert league_from_data(league_to_data(found)) == found


@pytest.mark.usefixtures("ray")
def test_fields_of_one_kind_are_refused_by_another() -> None:
    problems = league({"kind": "process", "address": "10.0.0.1"}, nodes=[{}])
    assert isinstance(problems, tuple)
    assert [problem.field for problem in problems] == ["clusters[0].backend.address"]


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    problems = league({"kind": "ray"}, nodes=[{}])
    assert isinstance(problems, tuple)
    assert [problem.field for problem in problems] == ["clusters[0].backend.kind"]
    assert "one of process, null, slurm, not 'ray'" in problems[0].rule
    assert "hanse.backends" in problems[0].rule


@pytest.mark.parametrize("kind", [7, None, {"a": 1}, ["slurm"]])
def test_a_kind_that_is_no_word_is_refused(kind: object) -> None:
    problems = league({"kind": kind}, nodes=[{}])
    if kind is None:
        assert isinstance(problems, LeagueConfig)
    else:
        assert isinstance(problems, tuple)
        assert [problem.field for problem in problems] == ["clusters[0].backend.kind"]


@pytest.mark.usefixtures("ray")
def test_daemons_and_commands_ask_the_kind(tmp_path: Path) -> None:
    found = league({"kind": "ray", "scratch": "/s"})
    assert isinstance(found, LeagueConfig)
    entry = found.clusters[0]
    assert isinstance(make_backend(entry, tmp_path), NullBackend)
    assert [place[:2] for place in _backend_directories(entry.backend, "north", "north")] == [
        ("'scratch'", Path("/s/north"))
    ]
    assert backend_notices(found) == [
        "Tasks in north are not isolated from each other: on Ray all share one process."
    ]
    assert _node_count_text(found) == "nodes as Ray lists them"


@pytest.mark.parametrize("name", BACKENDS.shipped)
def test_a_kind_has_the_fields_of_its_settings(name: str) -> None:
    kind = BACKENDS.get(name)
    assert tuple(field.name for field in kind.fields) == getattr(kind.settings, "__struct_fields__", ())


@pytest.mark.parametrize(
    "name", ["config.py", "reader.py", "backend_reader.py", "value_readers.py", "writer.py", "file.py"]
)
def test_the_configuration_of_a_league_names_no_foreign_system(name: str) -> None:
    text = (ROOT / "src/hanse/league" / name).read_text(encoding="utf-8").lower()
    assert "slurm" not in text
