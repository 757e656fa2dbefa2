"""Slurm's reasons why a job waits: what each means in words, and which have nothing to do with room.

Matched by how they begin, the first that fits: there are more than a hundred limits, and later versions have
more. A reason that is not here is told as Slurm says it, and its job is left to wait.
"""

from typing import Final

_ROOM: Final = (
    ("resources", "there is no room for it yet"),
    ("priority", "other jobs come first"),
    ("reqnodenotavail", "the node is taken, reserved, down or drained"),
    ("nodedown", "the node is down"),
    ("reservation", "it waits for a reservation"),
    ("cleaning", "what ran before is being cleared away"),
    ("prolog", "the node is being made ready"),
    ("begintime", "Slurm has put it off"),
    ("jobheld", "somebody holds it"),
    ("jobhold", "somebody holds it"),
    ("joblaunchfailure", "it could not be launched"),
    ("launch failed", "it could not be launched"),
    ("job requeued", "Slurm has put it back into its queue"),
)
_BARRED: Final = (
    ("partitiondown", "the partition is down"),
    ("partitioninactive", "the partition is inactive"),
    ("partitiontimelimit", "the partition does not allow a time limit this long"),
    ("partitionnodelimit", "the partition does not allow a job of one node, or the node is down"),
    ("partition", "the partition does not allow it"),
    ("invalidaccount", "the account is not valid"),
    ("accountnotallowed", "the partition does not allow the account"),
    ("invalidqos", "the QOS is not valid"),
    ("qosnotallowed", "the QOS is not allowed here"),
    ("qos", "a limit of the QOS is reached"),
    ("assoc", "a limit of the account or user is reached"),
    ("accountingpolicy", "a limit of the account or user is reached"),
    ("max", "a limit of the account is reached"),
    ("licenses", "no licence is free"),
    ("badconstraints", "no node is as it must be"),
)
"""What keeps a job from starting however much room there is: somebody must change it, or end other jobs."""


def bars(reason: str) -> bool:
    """Whether a job that waits for this reason waits for something other than room."""
    return bool(_found(reason, _BARRED))


def in_words(reason: str) -> str:
    """``PartitionDown`` as ``PartitionDown (the partition is down)``."""
    words = _found(reason, _BARRED) or _found(reason, _ROOM)
    return f"{reason} ({words})" if words else reason


def _found(reason: str, table: tuple[tuple[str, str], ...]) -> str:
    """What the first entry says whose beginning fits; empty: none does."""
    plain = reason.lower()
    return next((words for beginning, words in table if plain.startswith(beginning)), "")
