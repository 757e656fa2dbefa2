"""A daemon as far as its metrics ask it."""

from pathlib import Path

from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role


class Daemon:
    """What a watch asks of a daemon."""

    def __init__(self, directory: Path, role: Role) -> None:
        self.identity = Identity("league", role, "b1")
        self.directory = directory
        self.credentials = Credentials(directory)
        self.counters: dict[str, int] = {}
        self.wire_counters: dict[str, int] = {}
