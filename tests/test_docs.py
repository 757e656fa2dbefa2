"""The documents say all there is, and name nothing that is not there."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml

from hanse.cli.main import COMMANDS, hanse
from hanse.client.exit_codes import ExitCode
from hanse.core.broker.job_table import STATE_NAMES
from hanse.core.coverage_marks import ALL_MARKS as MARKS
from hanse.model import effects, events, messages
from hanse.model.job import JobSpec
from hanse.model.job_parser import parse_job_form
from hanse.model.messages import (
    Outcome,
    RefusalReason,
    SequencedMessage,
    SoftMessage,
    duplicate_check,
    history_check,
    shard_teardown,
)
from hanse.registry import CLUSTER_RANKERS, NODE_RANKERS, PLACERS, QUEUE_ORDERS, SIZERS

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of every row of every table."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text(name).split("\n")
        if line[:1] == "|"
    ]


def test_every_message_is_documented_with_its_kind() -> None:
    documented = {row[0].strip("`"): row for row in rows("docs/architecture/protocol.md")}
    for kind, bodies in (("sequenced", get_args(SequencedMessage)), ("soft", get_args(SoftMessage))):
        for body in bodies:
            row = documented.get(body.__name__)
            assert row is not None, f"docs/architecture/protocol.md has no row for {body.__name__}"
            assert kind in row[1:3], f"docs/architecture/protocol.md: {body.__name__} is {kind}"


def test_every_record_of_the_messages_is_mentioned() -> None:
    protocol = text("docs/architecture/protocol.md")
    for name, value in vars(messages).items():
        mine = isinstance(value, type) and value.__module__.startswith(messages.__name__)
        if mine and issubclass(value, msgspec.Struct):
            assert f"`{name}`" in protocol, f"docs/architecture/protocol.md does not mention {name}"


def test_no_message_is_invented() -> None:
    known = {body.__name__ for body in (*get_args(SequencedMessage), *get_args(SoftMessage))}
    for row in rows("docs/architecture/protocol.md"):
        if {"sequenced", "soft"} & set(row[1:3]):
            assert row[0].strip("`") in known, row[0]


@pytest.mark.parametrize("word", [*RefusalReason, *Outcome])
def test_refusals_and_outcomes_are_explained(word: str) -> None:
    assert [row for row in rows("docs/architecture/protocol.md") if row[0] == f"`{word}`"]


@pytest.mark.parametrize("state", STATE_NAMES)
def test_states_of_a_task_are_explained(state: str) -> None:
    assert [row for row in rows("docs/architecture/task-states.md") if row[0] == f"`{state}`" and row[1]]


def test_every_policy_is_documented() -> None:
    tables: dict[str, Collection[str]] = {
        "order": QUEUE_ORDERS.shipped,
        "placer": PLACERS.shipped,
        "node ranker": NODE_RANKERS.shipped,
        "ranking": CLUSTER_RANKERS.shipped,
        "sizer": SIZERS.shipped,
    }
    there = {(row[0], row[1].strip("`")) for row in rows("docs/architecture/policies.md") if row[0] in tables}
    assert there == {(kind, name) for kind, names in tables.items() for name in names}


def test_every_command_is_documented() -> None:
    listed = hanse.list_commands(hanse.make_context("hanse", [], resilient_parsing=True))
    page = "docs/reference/cli.md"
    documented = {row[0]: row[1] for row in rows(page) if re.fullmatch(r"`hanse [\w-]+`", row[0])}
    assert listed
    for name in listed:
        assert documented.get(f"`hanse {name}`"), f"{page} has no row for hanse {name}"
    for cell in documented:
        assert cell.strip("`").removeprefix("hanse ") in COMMANDS, f"{page} has a row for {cell}"


def test_every_exit_code_is_documented() -> None:
    there = {(row[0], row[1].strip("`")) for row in rows("docs/reference/cli.md") if row[0].isdigit()}
    assert there == {(str(code.value), code.name) for code in ExitCode}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_named_are_there(path: Path) -> None:
    """What stands between backticks as ``hanse word`` is a command."""
    for word in re.findall(r"`hanse ([a-z]+)\b(?![.\w])", path.read_text(encoding="utf-8")):
        assert word in COMMANDS, f"hanse {word}"


def test_every_make_target_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    for document in DOCUMENTS:
        for words in re.findall(r"`make ([a-z-]+)", document.read_text(encoding="utf-8")):
            assert words in targets, f"{document.name}: make {words}"
    listed = set(re.findall(r"`make ([a-z-]+)", text("docs/contributing/make-targets.md")))
    assert targets - {"help"} == listed


def test_the_readme_is_that_of_a_newcomer() -> None:
    """The promises, the two commands, and what does not exist yet are said there."""
    readme = text("README.md")
    for sentence in (
        "Every acknowledged task reaches a terminal state",
        "At most one attempt of a task ever takes effect",
        "No node is ever over-committed",
        "An acknowledged job survives the `kill -9` of any single process, and a restart of all of them",
        "`on_loss: fail`",
        "`unreachable: wait`",
        "make demo",
        "make test",
        "docs/status.md",
    ):
        assert sentence in readme, sentence
    assert len(readme.split("\n")) <= 200
    job = re.findall(r"\$ cat sweep\.yaml\n(.*?)\n\$", readme, re.DOTALL)
    assert isinstance(parse_job_form(yaml.safe_load(job[0])), JobSpec)


def test_the_architecture_is_an_overview() -> None:
    architecture = text("ARCHITECTURE.md")
    assert len(architecture.split("\n")) <= 110
    for page in (ROOT / "docs" / "architecture").glob("*.md"):
        assert f"(docs/architecture/{page.name})" in architecture, page.name


SOURCE = ROOT / "src" / "hanse"
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.relative_to(SOURCE.parent).as_posix())
def test_every_folder_says_where_to_enter(folder: Path) -> None:
    """The README of a folder names its entry points, and no file that is gone."""
    page = folder / "README.md"
    assert page.exists(), f"{page.relative_to(ROOT)} does not exist"
    where = page.read_text(encoding="utf-8")
    named = re.findall(r"`([\w/.-]+\.(?:py|c|md))`", where)
    assert "Where to enter" in where, page
    assert named, page
    for name in named:
        places = (folder / name, SOURCE / name, ROOT / name)
        assert any(place.exists() for place in places), f"{page.relative_to(ROOT)}: {name}"


def test_every_module_has_a_docstring() -> None:
    without = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    assert not without


# --- diagrams ----------------------------------------------------------------------------------------------

KNOWN_NAMES = {
    name
    for module in (messages, shard_teardown, duplicate_check, history_check, events, effects)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct)
}
DIAGRAMS = [
    (path, block)
    for path in DOCUMENTS
    for block in re.findall(
        r"^```mermaid\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
]


def test_there_are_enough_diagrams() -> None:
    architecture = [path for path, _ in DIAGRAMS if path.parent.name == "architecture"]
    figures = list((ROOT / "docs").rglob("*.svg"))
    assert len(architecture) + len(figures) >= 6


@pytest.mark.parametrize(("path", "block"), DIAGRAMS, ids=lambda given: getattr(given, "stem", ""))
def test_messages_of_a_diagram_exist(path: Path, block: str) -> None:
    """A word in the form of a class name, and a capital at the head of an arrow's label, names a record."""
    words = re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", block)
    words += re.findall(r"->>[^:\n]*: ([A-Z][a-z]\w*)", block)
    for word in words:
        assert word in KNOWN_NAMES, f"{path.name}: {word}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_are_there(path: Path) -> None:
    """What stands between backticks as a path of a module or test is a file, here or below ``src/hanse``."""
    if path.parent.name == "adr" or path.name == "CHANGELOG.md":
        return  # these say what was
    for name in re.findall(
        r"`((?:[\w-]+/)+[\w-]+\.(?:py|c|toml|txt|svg))`", path.read_text(encoding="utf-8")
    ):
        places = (ROOT / name, SOURCE / name, path.parent / name, ROOT / "tools" / name)
        assert any(place.exists() for place in places), f"{path.name}: {name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            aim = (path.parent / file).resolve() if file else path
            assert aim.exists(), target
            if anchor:
                assert anchor in anchors(aim), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_in_lists_stay_in_them(path: Path) -> None:
    """At a block with fewer blanks than four the site ends a list, and numbers the next one anew."""
    found = re.findall(r"^ {1,3}```.*", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert not found


def anchors(path: Path) -> list[str]:
    """The anchors that a heading gets."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]


def test_every_decision_is_listed_and_complete() -> None:
    folder = ROOT / "docs" / "adr"
    files = sorted(folder.glob("0*.md"))
    index = (folder / "README.md").read_text(encoding="utf-8")
    numbers = [path.name[:4] for path in files]
    assert len(set(numbers)) == len(numbers), "a number is given once; one that nobody used leaves a gap"
    for path in files:
        assert f"({path.name})" in index, path.name
        heads = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert heads == ["Context", "Requirements", "Decision", "Alternatives", "Consequences"], path.name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_that_is_named_is_there(path: Path) -> None:
    """What stands between backticks as ``module.name`` is a name in that module of the core, or a mark."""
    core = ROOT / "src" / "hanse" / "core"
    for module, name in re.findall(r"`(\w+)\.(\w+)`", path.read_text(encoding="utf-8")):
        texts = [file.read_text(encoding="utf-8") for file in core.rglob(f"{module}.py")]
        if texts and name != "py" and f"{module}.{name}" not in MARKS:
            assert any(re.search(rf"\b{name}\b", text) for text in texts), f"{module}.{name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_imports_of_examples_are_there(path: Path) -> None:
    """An example in Python imports only what exists."""
    for block in re.findall(
        r"^```python\n((?:(?!```).*\n)*)```", path.read_text(encoding="utf-8"), re.MULTILINE
    ):
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("hanse."):
                continue
            place = ROOT / "src" / (node.module or "").replace(".", "/")
            source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            assert source.exists(), node.module
            known = set(top_level_names(ast.parse(source.read_text(encoding="utf-8"))))
            for name in node.names:
                assert name.name in known, f"{node.module}.{name.name}"


def top_level_names(tree: ast.Module) -> Iterator[str]:
    """The names that a module defines or imports."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
