"""State of the projector besides the jobs; stored with every batch."""

import msgspec


class ProjectorState(msgspec.Struct):
    """State of the projector."""

    clusters: list[str] = []
    """Cluster names by number, in the order in which this broker first used them."""
    changes: int = 0
    """Number of rows of state changes."""
    ended: int = 0
    durations: int = 0
    dropped_changes: int = 0
    """Highest serial of a dropped state change; 0: none was dropped."""
    dropped_decisions: int = 0
