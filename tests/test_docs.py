"""The documents say all there is, and name nothing that is not there."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from hanse.cli.main import COMMANDS, hanse
from hanse.client.exit_codes import ExitCode
from hanse.core.broker.job_table import STATE_NAMES
from hanse.core.coverage_marks import ALL_MARKS as MARKS
from hanse.model import messages
from hanse.model.messages import Outcome, RefusalReason, SequencedMessage, SoftMessage
from hanse.policy.cluster_rankers import CLUSTER_RANKERS
from hanse.policy.node_rankers import NODE_RANKERS
from hanse.policy.placers import PLACERS
from hanse.policy.queue_orders import QUEUE_ORDERS
from hanse.policy.sizers import SIZERS

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
    documented = {row[0].strip("`"): row for row in rows("docs/protocol.md")}
    for kind, bodies in (("sequenced", get_args(SequencedMessage)), ("soft", get_args(SoftMessage))):
        for body in bodies:
            row = documented.get(body.__name__)
            assert row is not None, f"docs/protocol.md has no row for {body.__name__}"
            assert kind in row[1:3], f"docs/protocol.md: {body.__name__} is {kind}"


def test_every_record_of_the_messages_is_mentioned() -> None:
    protocol = text("docs/protocol.md")
    for name, value in vars(messages).items():
        mine = isinstance(value, type) and value.__module__.startswith(messages.__name__)
        if mine and issubclass(value, msgspec.Struct):
            assert f"`{name}`" in protocol, f"docs/protocol.md does not mention {name}"


def test_no_message_is_invented() -> None:
    known = {body.__name__ for body in (*get_args(SequencedMessage), *get_args(SoftMessage))}
    for row in rows("docs/protocol.md"):
        if {"sequenced", "soft"} & set(row[1:3]):
            assert row[0].strip("`") in known, row[0]


@pytest.mark.parametrize("word", [*RefusalReason, *Outcome])
def test_refusals_and_outcomes_are_explained(word: str) -> None:
    assert [row for row in rows("docs/protocol.md") if row[0] == f"`{word}`"]


@pytest.mark.parametrize("state", STATE_NAMES)
def test_states_of_a_task_are_explained(state: str) -> None:
    assert f"`{state}`" in text("ARCHITECTURE.md").partition("## The life of a task")[2]


def test_every_policy_is_documented() -> None:
    tables: dict[str, Collection[str]] = {
        "order": QUEUE_ORDERS,
        "placer": PLACERS,
        "node ranker": NODE_RANKERS,
        "ranking": CLUSTER_RANKERS,
        "sizer": SIZERS,
    }
    there = {(row[0], row[1].strip("`")) for row in rows("ARCHITECTURE.md") if row[0] in tables}
    assert there == {(kind, name) for kind, names in tables.items() for name in names}


def test_every_command_is_documented() -> None:
    listed = hanse.list_commands(hanse.make_context("hanse", [], resilient_parsing=True))
    documented = [row[0] for row in rows("README.md")]
    assert listed
    for name in listed:
        assert f"`hanse {name}`" in documented, f"README.md has no row for hanse {name}"
    for cell in documented:
        named = re.fullmatch(r"`hanse ([\w-]+)`", cell)
        assert named is None or named[1] in COMMANDS, f"README.md has a row for {cell}, which is not there"


def test_every_exit_code_is_documented() -> None:
    there = {(row[0], row[1].strip("`")) for row in rows("README.md") if row[0].isdigit()}
    assert there == {(str(code.value), code.name) for code in ExitCode}


def test_every_make_target_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), flags=re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        for words in re.findall(r"`make ([a-z-]+)", text(document)):
            assert words in targets, f"{document}: make {words}"


def test_every_module_has_its_place() -> None:
    """ARCHITECTURE.md says what each file (or folder, as `sim/x/`) is for, and names no file that is gone."""
    told = {
        row[0].strip("`")
        for row in rows("ARCHITECTURE.md")
        if re.fullmatch(r"`\w+/(?:[\w/]*(\.py|\.c|/))?`", row[0])
    }
    source = ROOT / "src" / "hanse"
    there = [
        path.relative_to(source)
        for path in sorted(source.rglob("*"))
        if path.suffix in (".py", ".c") and path.name not in ("__init__.py", "__main__.py")
    ]
    for path in there:
        folders = [f"{folder.as_posix()}/" for folder in path.parents]
        assert told & {path.as_posix(), *folders}, f"{path} is not in ARCHITECTURE.md"
    assert len(told) > 50
    to_come = {f"cli/commands/{entry.module}.py" for entry in COMMANDS.values()}
    gone = [name for name in sorted(told - to_come) if name.endswith(".py") and not (source / name).exists()]
    assert not gone, f"no longer there: {gone}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            aim = (path.parent / file).resolve() if file else path
            assert aim.exists(), target
            if anchor:
                assert anchor in anchors(aim), target


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
