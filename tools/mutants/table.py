"""The tables of planted bugs, one TOML file a room, and whether they still fit the code."""

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = Path(__file__).resolve().parent / "tables"


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One planted bug."""

    name: str
    """Room, module and a few words: ``core/broker/failover/standby/any-bid-counts``. ``ONLY`` selects by how
    it begins."""
    file: str
    old: str
    """Text that is in the file exactly once."""
    new: str
    bug: str
    """What is wrong then, as a sentence."""
    tests: tuple[str, ...] = ()
    """Files or folders of the nearest tests; none: those that the table names for the file."""
    survives: str = ""
    """Why nothing can notice it, if so: it is known, and listed."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of them."""

    nearest: dict[str, tuple[str, ...]]
    """Source file -> its nearest tests."""
    mutant: tuple[Mutant, ...]


def load(only: str = "") -> list[Mutant]:
    """All planted bugs whose names begin so, each with its tests, in the order of the tables."""
    found = []
    for path in sorted(TABLES.glob("*.toml")):
        table = msgspec.convert(tomllib.loads(path.read_text()), Table)
        for mutant in table.mutant:
            tests = mutant.tests or table.nearest.get(mutant.file, ())
            if mutant.name.startswith(only):
                found.append(msgspec.structs.replace(mutant, tests=tests))
    return found


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """The text of its file with the bug in it; a ``ValueError`` says why that cannot be had."""
    path = root / mutant.file
    if not path.is_file():
        raise ValueError(f"{mutant.name}: there is no {mutant.file}; correct the table")
    text = path.read_text()
    count = text.count(mutant.old)
    if count != 1:
        raise ValueError(
            f"{mutant.name}: its text is in {mutant.file} {count} times and not once; "
            f"correct `old`: {mutant.old!r}"
        )
    changed = text.replace(mutant.old, mutant.new)
    if changed == text:
        raise ValueError(f"{mutant.name}: it changes nothing")
    if path.suffix == ".py":
        try:
            compile(changed, mutant.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{mutant.name}: with it {mutant.file} is not Python: {error}") from error
    return changed


def problems(mutants: list[Mutant], root: Path = ROOT) -> list[str]:
    """What is wrong with the tables: each as a sentence."""
    found = []
    names: dict[str, None] = {}
    for mutant in mutants:
        if mutant.name in names:
            found.append(f"{mutant.name}: there are two of this name")
        names[mutant.name] = None
        if not mutant.tests:
            found.append(f"{mutant.name}: no tests are named for {mutant.file}")
        found += [f"{mutant.name}: there is no {test}" for test in mutant.tests if not (root / test).exists()]
        try:
            mutated(mutant, root)
        except ValueError as error:
            found.append(str(error))
    return found
