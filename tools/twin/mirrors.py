"""Comments of the C files, digests of the Python functions that they name, and what does not fit together.

A comment directly above a C function begins with ``mirrors PATH NAME`` lines or with ``own:``. The table has
a digest of every function named, as it was when somebody compared it with its twin.
"""

import ast
import hashlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path("sim/replay/compiled")
TABLE: Final = FOLDER / "mirrors.toml"
PACKAGE: Final = ROOT / "src" / "hanse"
HEADING: Final = """\
# Digests of the Python functions that the compiled league mirrors, from when somebody compared the two.
# Written by `python -m tools.twin --accept`.

"""
_MIRRORS: Final = re.compile(r"^(?:/\*| \*) mirrors (.*?)(?: \*/)?$", re.MULTILINE)
_NAME: Final = re.compile(r"\b(\w+)\(")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Twin:
    """A C function, and the Python functions that it mirrors, each as ``PATH NAME``."""

    file: str
    name: str
    mirrors: tuple[str, ...]
    is_own: bool


@dataclass(frozen=True)
class Finding:
    """Something that does not fit; ``moved_to``: the present place of a function, if there is only one."""

    kind: str
    """``unmarked``, ``missing``, ``moved``, ``changed``, ``new`` or ``unused``."""
    text: str
    mirror: str = ""
    moved_to: str = ""


def read_twins(package: Path) -> list[Twin]:
    """Return all C functions of the compiled league."""
    folder = package / FOLDER
    files = sorted(path for path in folder.iterdir() if path.suffix in (".c", ".h"))
    return [twin for path in files for twin in parse_functions(path.name, path.read_text(encoding="utf-8"))]


def parse_functions(file: str, source: str) -> Iterator[Twin]:
    """Parse a C file: a function is a header at the beginning of a line, and a line with a brace alone."""
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if line != "{":
            continue
        first = number
        while first and lines[first - 1].strip() and not lines[first - 1].endswith("*/"):
            first -= 1
        named = _NAME.search(" ".join(lines[first:number]))
        assert named is not None, f"{file}:{number + 1}: a function without a name"
        comment = _comment_above(lines, first)
        mirrors = tuple(_MIRRORS.findall(comment))
        yield Twin(file, named[1], mirrors, comment.startswith("/* own: "))


def _comment_above(lines: list[str], first: int) -> str:
    if not first or not lines[first - 1].endswith("*/"):
        return ""
    top = first - 1
    while not lines[top].startswith("/*"):
        top -= 1
    return "\n".join(lines[top:first])


def read_functions(package: Path) -> dict[str, str]:
    """Return the digest of every Python function of the package, by ``PATH NAME``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        for name, node in _functions(ast.parse(path.read_text(encoding="utf-8")), ""):
            found[f"{place} {name}"] = digest(node)
    return found


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, Function):
            yield f"{prefix}{node.name}", node


def digest(node: Function) -> str:
    """Return a digest of a function's code: neither its docstring, nor comments, nor its layout count."""
    return hashlib.sha256(_dump(node).encode()).hexdigest()[:16]


def _dump(node: object) -> str:
    """Dump a syntax tree as every version of Python does: without fields that are empty."""
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if isinstance(node, Function) and name == "body" and ast.get_docstring(node) is not None:
            value = value[1:]  # noqa: PLW2901  the docstring goes
        if value is not None and value != []:
            fields.append(f"{name}={_dump(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def read_table(package: Path) -> dict[str, str]:
    """Return the accepted digests, by ``PATH NAME``."""
    path = package / TABLE
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_table(package: Path, digests: dict[str, str]) -> None:
    """Write the table."""
    lines = [f'"{mirror}" = "{digests[mirror]}"\n' for mirror in sorted(digests)]
    (package / TABLE).write_text(HEADING + "".join(lines), encoding="utf-8")


def find_problems(package: Path) -> list[Finding]:
    """Return all that somebody must look at before the two fit together again."""
    twins, functions, table = read_twins(package), read_functions(package), read_table(package)
    found = [_unmarked(twin) for twin in twins if twin.is_own == bool(twin.mirrors)]
    named = sorted({mirror for twin in twins for mirror in twin.mirrors})
    for mirror in named:
        where = ", ".join(f"`{twin.name}` in {twin.file}" for twin in twins if mirror in twin.mirrors)
        if mirror not in functions:
            found.append(_missing(mirror, where, functions, table))
        elif mirror not in table:
            found.append(
                Finding("new", f"{mirror} is not in {TABLE.name} yet ({where}): compare the two", mirror)
            )
        elif table[mirror] != functions[mirror]:
            text = f"{mirror} has changed: look whether {where} must change too"
            found.append(Finding("changed", text, mirror))
    unused = (
        f"{mirror} is in {TABLE.name}, but no C function mirrors it"
        for mirror in table
        if mirror not in named
    )
    return [*found, *(Finding("unused", text) for text in sorted(unused))]


def _unmarked(twin: Twin) -> Finding:
    both = "says both `mirrors` and `own:`" if twin.is_own else "says neither `mirrors PATH NAME` nor `own:`"
    return Finding("unmarked", f"`{twin.name}` in {twin.file} {both} in the comment above it")


def _missing(mirror: str, where: str, functions: dict[str, str], table: dict[str, str]) -> Finding:
    """A function that is not where it was: with the same code somewhere else, or only its name."""
    _, _, name = mirror.partition(" ")
    bare = name.rpartition(".")[2]
    alike = [other for other in functions if other.partition(" ")[2].rpartition(".")[2] == bare]
    same = [other for other in alike if functions[other] == table.get(mirror)]
    same = [other for other in same if other.endswith(f" {name}")] or same
    if len(same) == 1:
        text = f"{mirror} is {same[0]} now, unchanged: `python -m tools.twin --follow` names it so ({where})"
        return Finding("moved", text, mirror, same[0])
    alike = [other for other in alike if other.endswith(f" {name}")] or alike
    if len(alike) == 1:
        text = f"{mirror} is perhaps {alike[0]} now, and has changed: compare that with {where}"
        return Finding("missing", text, mirror, alike[0])
    others = "; of the same name are: " + ", ".join(alike) if alike else ""
    return Finding(
        "missing", f"{mirror} does not exist: {where} must name another function, or change{others}", mirror
    )


def follow(package: Path, moved: dict[str, str]) -> None:
    """Give functions in the C comments and in the table the names of their present places."""
    for path in sorted((package / FOLDER).iterdir()):
        if path.suffix in (".c", ".h"):
            text = path.read_text(encoding="utf-8")
            for old, new in moved.items():
                text = re.sub(rf"(?<=\* mirrors ){re.escape(old)}(?= \*/$|$)", new, text, flags=re.MULTILINE)
            path.write_text(text, encoding="utf-8")
    write_table(package, {moved.get(mirror, mirror): known for mirror, known in read_table(package).items()})


def accept(package: Path) -> list[str]:
    """Take the present code of all functions named as compared; return those that were new or different."""
    functions, table = read_functions(package), read_table(package)
    named = {mirror for twin in read_twins(package) for mirror in twin.mirrors if mirror in functions}
    write_table(package, {mirror: functions[mirror] for mirror in named})
    return sorted(mirror for mirror in named if table.get(mirror) != functions[mirror])
