"""Slurm's reasons for pending jobs: the meaning of each, and the reasons that do not concern free resources.

The first entry with a matching beginning counts: there are more than a hundred limits, and later versions
have more. An unknown reason is passed on unchanged, and its job is left to wait.
"""

from typing import Final

_ROOM_REASONS: Final = (
    ("resources", "there is no room for it yet"),
    ("priority", "other jobs come first"),
    ("reqnodenotavail", "the node is taken, reserved, down or drained"),
    ("nodedown", "the node is down"),
    ("reservation", "it waits for a reservation"),
    ("cleaning", "the node is being cleaned up"),
    ("prolog", "the node is being made ready"),
    ("begintime", "Slurm has postponed it"),
    ("jobheld", "a user or an administrator holds it"),
    ("jobhold", "a user or an administrator holds it"),
    ("joblaunchfailure", "it could not be launched"),
    ("launch failed", "it could not be launched"),
    ("job requeued", "Slurm has put it back into its queue"),
)
_BARRED_REASONS: Final = (
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
    ("badconstraints", "no node has the required features"),
)
"""Reasons that hold back a job however many resources are free, until a person or another job acts."""


def is_barred(reason: str) -> bool:
    """True if a job with this reason waits for something other than free resources."""
    return bool(_find_words(reason, _BARRED_REASONS))


def explain_reason(reason: str) -> str:
    """Return ``PartitionDown`` as ``PartitionDown (the partition is down)``."""
    words = _find_words(reason, _BARRED_REASONS) or _find_words(reason, _ROOM_REASONS)
    return f"{reason} ({words})" if words else reason


def _find_words(reason: str, table: tuple[tuple[str, str], ...]) -> str:
    """Return the text of the first entry with a matching beginning; empty: there is none."""
    plain = reason.lower()
    return next((words for beginning, words in table if plain.startswith(beginning)), "")
