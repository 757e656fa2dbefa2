"""The compiled league names what it mirrors, and nothing of that has changed since the two were compared."""

import ast
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.twin import mirrors
from tools.twin.mirrors import Finding, Twin

CLAIMS = "core/warden/claim_acceptance.py"
MIRROR = f"{CLAIMS} ClaimAcceptance._refuse_all"
ADVICE = (
    "Compare them, change the C function if it must do the same, then run `python -m tools.twin --accept` "
    "(`--follow` for what has only moved) and `python setup.py build_kernel`."
)


def texts(findings: list[Finding]) -> str:
    return "\n".join([*(finding.text for finding in findings), ADVICE])


KNOWN: set[Finding] = set()
"""Findings that the sources have themselves: the last test is there for these."""


def find(package: Path) -> list[Finding]:
    return [finding for finding in mirrors.find_problems(package) if finding not in KNOWN]


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A copy of the package's sources, with an accepted table."""
    copy = tmp_path / "hanse"
    chosen = shutil.ignore_patterns(
        "__pycache__", "*.so", "_supervisor", "live", "sdk", "client", "cli", "learn"
    )
    shutil.copytree(mirrors.PACKAGE, copy, ignore=chosen)
    mirrors.accept(copy)
    KNOWN.update(mirrors.find_problems(copy))
    yield copy
    KNOWN.clear()


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def body_of(package: Path, mirror: str) -> ast.FunctionDef:
    place, _, name = mirror.partition(" ")
    holder, _, bare = name.rpartition(".")
    for node in ast.walk(ast.parse((package / place).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == holder:
            return next(each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == bare)
    raise AssertionError(mirror)


def cut(package: Path, mirror: str) -> str:
    """Remove a method from its module; return its source."""
    path = package / mirror.partition(" ")[0]
    node = body_of(package, mirror)
    lines = path.read_text(encoding="utf-8").split("\n")
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
    source = "\n".join(lines[first : node.end_lineno])
    path.write_text("\n".join(lines[:first] + lines[node.end_lineno :]), encoding="utf-8")
    return textwrap.dedent(source)


# --- the check itself, tried on what it must find ----------------------------------------------------------


def test_a_changed_function_is_found(package: Path) -> None:
    first = body_of(package, MIRROR).body[0]  # the docstring
    line = (package / CLAIMS).read_text(encoding="utf-8").split("\n")[first.lineno - 1]
    change(package / CLAIMS, line, f"{line}\n        assert batch")
    (found,) = find(package)
    assert (found.kind, found.mirror) == ("changed", MIRROR)
    assert found.text == f"{MIRROR} has changed: look whether `refuse_lot` in ledger.c must change too"
    assert mirrors.accept(package) == [MIRROR]
    assert not find(package)


def test_prose_and_layout_are_no_change(package: Path) -> None:
    first = body_of(package, MIRROR).body[0]
    line = (package / CLAIMS).read_text(encoding="utf-8").split("\n")[first.lineno - 1]
    change(package / CLAIMS, line, '        """Another docstring."""\n\n        # and a comment')
    assert not find(package)


def test_a_function_that_moved_is_followed(package: Path) -> None:
    source = cut(package, MIRROR)
    moved = package / "core" / "warden" / "refusals.py"
    moved.write_text(f"class Refusals:\n{textwrap.indent(source, '    ')}\n", encoding="utf-8")
    (found,) = find(package)
    assert found.kind == "moved"
    assert found.moved_to == "core/warden/refusals.py Refusals._refuse_all"
    assert "--follow" in found.text
    mirrors.follow(package, {found.mirror: found.moved_to})
    assert not find(package)
    twin = next(twin for twin in mirrors.read_twins(package) if twin.name == "refuse_lot")
    assert twin.mirrors == (found.moved_to,)


def test_a_function_that_moved_and_changed_is_named(package: Path) -> None:
    source = cut(package, MIRROR).replace("batch", "lot")
    moved = package / "core" / "warden" / "refusals.py"
    moved.write_text(f"class Refusals:\n{textwrap.indent(source, '    ')}\n", encoding="utf-8")
    (found,) = find(package)
    assert found.kind == "missing"
    assert "is perhaps core/warden/refusals.py Refusals._refuse_all now, and has changed" in found.text


def test_a_function_that_is_gone_is_found(package: Path) -> None:
    cut(package, MIRROR)
    (found,) = find(package)
    assert (found.kind, found.mirror) == ("missing", MIRROR)
    assert "`refuse_lot` in ledger.c must name another function" in found.text


def test_a_function_in_c_must_say_what_it_is(package: Path) -> None:
    file = package / mirrors.FOLDER / "ledger.c"
    file.write_text(
        file.read_text("utf-8") + "\n/* helps */\nstatic int helper(void)\n{\n}\n", encoding="utf-8"
    )
    (found,) = find(package)
    assert found.kind == "unmarked"
    assert found.text.startswith("`helper` in ledger.c says neither")


def test_a_function_that_is_newly_named_must_be_compared(package: Path) -> None:
    other = f"{CLAIMS} ClaimAcceptance._enlarge"
    change(package / mirrors.FOLDER / "ledger.c", f"/* mirrors {MIRROR}\n", f"/* mirrors {other}\n")
    assert [(found.kind, found.mirror) for found in find(package)] == [("new", other), ("unused", "")]


def test_comments_are_parsed() -> None:
    source = textwrap.dedent("""\
        /* mirrors a.py f
         * mirrors b.py C.g
         * Prose that mirrors nothing. */
        static int
        one(int a,
            int b)
        {
        }

        /* own: a helper. */
        int two(void)
        {
        }
        /* --- section --- */

        int three(void)
        {
        }
        """)
    assert list(mirrors.parse_functions("x.c", source)) == [
        Twin("x.c", "one", ("a.py f", "b.py C.g"), is_own=False),
        Twin("x.c", "two", (), is_own=True),
        Twin("x.c", "three", (), is_own=False),
    ]


# --- the league --------------------------------------------------------------------------------------------


def test_every_function_in_c_is_read() -> None:
    """Braces alone at the beginning of a line open functions, and nothing else does."""
    twins = mirrors.read_twins(mirrors.PACKAGE)
    folder = mirrors.PACKAGE / mirrors.FOLDER
    ends = sum(path.read_text("utf-8").count("\n}\n") for path in folder.glob("*.[ch]"))
    assert len(twins) == ends > 150


def test_the_twin_follows_the_machines() -> None:
    findings = mirrors.find_problems(mirrors.PACKAGE)
    assert not findings, texts(findings)
