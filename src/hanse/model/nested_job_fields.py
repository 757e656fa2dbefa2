"""Fields inside other fields of a job file, and what the tables of fields share."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta

from hanse.model.field_descriptions import CommandOption, JobField, OptionKind
from hanse.model.field_reader import choice_reader, read_flag, read_text, read_texts
from hanse.model.form_values import write_list
from hanse.model.job import NAME_CHARACTERS_MAX, Proximity
from hanse.model.job_validation import CLUSTERS_MAX

NAME_LIMITS: Final = f"1 to {NAME_CHARACTERS_MAX} printable characters, no space at either end"
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
_literal: Any = Literal


class Enumeration(NamedTuple):
    """Parts of a row whose value is one of the words of an enumeration."""

    kind: str
    read: Any
    schema: Any
    words: tuple[str, ...]


def enumeration(words: type[StrEnum], default: StrEnum) -> Enumeration:
    """Return the parts of a row for an enumeration; the default is named first."""
    names = tuple(str(word) for word in (default, *(word for word in words if word is not default)))
    return Enumeration(
        " or ".join(f"`{name}`" for name in names), choice_reader(words), _literal[names], names
    )


_SCOPE: Final = enumeration(Proximity, Proximity.NODE)

CLUSTERS_FIELDS: Final = (
    JobField(
        "allow", "list of texts", "[]", f"at most {CLUSTERS_MAX:,}",
        "Clusters in which the job may run; empty: all.", "allow: [oslo, bern]",
        attribute="clusters_allowed", read=read_texts, write=write_list, schema=tuple[Name, ...],
        option=CommandOption(("--cluster",), 80, "Run in these clusters only.", "NAME", OptionKind.TEXTS),
    ),
    JobField(
        "deny", "list of texts", "[]", f"at most {CLUSTERS_MAX:,}; none of `allow`",
        "Clusters in which the job must not run.", "deny: [rome]",
        attribute="clusters_forbidden", read=read_texts, write=write_list, schema=tuple[Name, ...],
        option=CommandOption(
            ("--not-cluster",), 90, "Never run in these clusters.", "NAME", OptionKind.TEXTS
        ),
    ),
    JobField(
        "prefer", "list of texts", "[]", f"at most {CLUSTERS_MAX:,}",
        "Clusters that hold the job's data, best first. A preference, not a rule.", "prefer: [bern]",
        attribute="data", read=read_texts, write=write_list, schema=tuple[Name, ...],
        option=CommandOption(
            ("--prefer",), 100, "Clusters that hold its data, best first.", "NAME", OptionKind.TEXTS
        ),
    ),
)  # fmt: skip
"""Fields of ``clusters``. The job's record holds their values."""

AFFINITY_FIELDS: Final = (
    JobField(
        "label", "text", "", f"required; {NAME_LIMITS}", "The label of the other tasks.", "label: db",
        read=read_text, schema=Name,
        required="this says which label to be near to or apart from; it is missing",
    ),
    JobField(
        "scope", _SCOPE.kind, "node", "", "The distance.", "label: db\nscope: cluster",
        attribute="proximity", read=_SCOPE.read, write=str, schema=_SCOPE.schema,
    ),
    JobField(
        "apart", "true or false", "false", "",
        "false: run only where a task with the label runs. true: never run there. With a label of "
        "the job's own, true spreads its tasks.",
        "label: db\napart: true",
        read=read_flag, schema=bool,
    ),
)  # fmt: skip
"""Fields of each entry of ``affinity``."""
