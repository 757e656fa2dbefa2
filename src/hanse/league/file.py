"""The league file on disk, the YAML file that every member reads.

``league.reader`` and ``league.writer`` convert its data; ``league.fields`` is the table of all fields, from
which ``docs/reference/league-file.md`` is generated. Addresses that are left out are chosen on this machine
when the league is first started.
"""

from pathlib import Path
from typing import Final

import yaml

from hanse.league.config import LeagueConfig, LeagueError
from hanse.league.reader import league_from_data
from hanse.league.writer import league_to_data
from hanse.security import atomic_files

FILE_BYTES_MAX: Final = 4 << 20
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Ten times as fast as the Python ones, where PyYAML has them; every member reads the file as it starts."""


def load(path: Path) -> LeagueConfig:
    """Read a league file; raise ``LeagueError`` with all its problems."""
    return parse(path.read_bytes(), str(path))


def parse(raw: bytes, name: str) -> LeagueConfig:
    """Return the league that a file's content describes; ``name`` is the file's name in errors."""
    if len(raw) > FILE_BYTES_MAX:
        raise LeagueError(f"{name} is larger than {FILE_BYTES_MAX} bytes")
    try:
        data = yaml.load(raw, _Loader)  # noqa: S506  a safe one
    except (yaml.YAMLError, RecursionError) as error:
        raise LeagueError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    league = league_from_data(data)
    if isinstance(league, LeagueConfig):
        return league
    lines = "\n".join(f"  {problem.field or 'the file'}: {problem.rule}" for problem in league)
    raise LeagueError(f"{name} does not describe a league:\n{lines}")


def store(path: Path, league: LeagueConfig) -> None:
    """Write a league file that ``load`` reads back to the same league."""
    atomic_files.replace(path, league_to_text(league).encode("utf-8"), atomic_files.PUBLIC)


def league_to_text(league: LeagueConfig) -> str:
    """Return the content of a league's file."""
    return yaml.dump(league_to_data(league), Dumper=_Dumper, sort_keys=False)
