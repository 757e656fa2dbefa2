"""Pages with diagrams of states and of messages, from the tables of the code."""

from collections.abc import Iterable
from typing import Final, get_args

from hanse.core.broker.job_table import CLAIMED, PLACED, RUNNING, STATE_NAMES, SUCCEEDED, TRANSITIONS
from hanse.core.warden.attempts import ATTEMPT_TRANSITIONS, OUTCOME_BY_STOP_REASON
from hanse.core.warden.ledger_records import ORDERED, STOPPING
from hanse.core.warden.ledger_records import RUNNING as ATTEMPT_RUNNING
from hanse.live.rpc.peer_permissions import ALLOWED_MESSAGES
from hanse.model.messages import Outcome, SequencedMessage
from tools.reference.markdown import fence, paragraphs, table

MEANINGS: Final = {
    "blocked": "something that the task needs has not succeeded yet",
    "waiting": "in the queue",
    "claimed": "the broker has sent a claim to a warden",
    "placed": "a warden has accepted the task",
    "running": "an attempt runs",
    "succeeded": "terminal",
    "failed": "terminal",
    "cancelled": "terminal",
}
ATTEMPT_NAMES: Final = {
    ORDERED: ("ordered", "room is taken, and the runner was told to start it"),
    ATTEMPT_RUNNING: ("running", "the runner has reported its start"),
    STOPPING: ("stopping", "the runner was told to stop it; room is held until the runner reports its end"),
}
OUTCOMES: Final = {
    Outcome.SUCCEEDED: "the command ended with exit code 0",
    Outcome.FAILED: "the command ended with another exit code or by a signal, or could not be started",
    Outcome.CANCELLED: "stopped because the broker asked for it",
    Outcome.PREEMPTED: "stopped for more urgent work",
    Outcome.LOST: "its node is gone, or it was stopped because a lease had lapsed",
    Outcome.UNSTARTED: "its runner had no lease under which to start it",
}


def tasks() -> str:
    """The page of the states of a task."""
    arrows = [(STATE_NAMES[before], STATE_NAMES[after]) for before, after in TRANSITIONS]
    return paragraphs(
        "# Task states",
        _diagram("blocked", arrows, STATE_NAMES[SUCCEEDED:]),
        "A broker keeps one of these states for each task of its jobs (`core/broker/job_table.py`). "
        "Tasks begin as `blocked`. Terminal states are never left. A task that goes back to `waiting` gets a "
        "higher attempt number at its next start, and the end of an older attempt changes nothing.",
        table(("state", "meaning"), [(f"`{name}`", MEANINGS[name]) for name in STATE_NAMES]),
        "## Transitions",
        table(
            ("from", "to", "when"),
            [(f"`{STATE_NAMES[a]}`", f"`{STATE_NAMES[b]}`", when) for (a, b), when in TRANSITIONS.items()],
        ),
        f"`{STATE_NAMES[CLAIMED]}` does not lead to `{STATE_NAMES[RUNNING]}`: links between members keep "
        f"the order "
        f"of messages, so the answer to a claim (`{STATE_NAMES[PLACED]}`) arrives before news of a start. "
        f"A test "
        "compares this table with every change of state in simulated leagues under faults.",
    )


def attempts() -> str:
    """The page of the states of an attempt at its warden."""
    names = {state: name for state, (name, _) in ATTEMPT_NAMES.items()}
    arrows = [(names[before], names[after]) for before, after in ATTEMPT_TRANSITIONS]
    arrows += [(name, "unsettled") for name in names.values()]
    reasons = ", ".join(f"`{reason}` gives `{outcome}`" for reason, outcome in OUTCOME_BY_STOP_REASON.items())
    return paragraphs(
        "# Attempt states",
        _diagram("ordered", arrows, ("unsettled",)),
        "A warden keeps one of these states for each attempt that holds room on its nodes "
        "(`core/warden/ledger_records.py`). When "
        "an attempt ends, its room is free at once; its end is kept as *unsettled* until the broker "
        "confirms that "
        "it has recorded it.",
        table(("state", "meaning"), [(f"`{name}`", text) for name, text in ATTEMPT_NAMES.values()]),
        "## Transitions",
        table(
            ("from", "to", "when"),
            [(f"`{names[a]}`", f"`{names[b]}`", when) for (a, b), when in ATTEMPT_TRANSITIONS.items()],
        ),
        "## Outcomes",
        "An attempt ends with one of these outcomes. If it ends because it was stopped, the reason decides: "
        f"{reasons}.",
        table(("outcome", "meaning"), [(f"`{outcome}`", OUTCOMES[outcome]) for outcome in Outcome]),
    )


def messages() -> str:
    """The page of who may send what to whom."""
    sequenced = {body.__name__ for body in get_args(SequencedMessage)}
    rows = []
    arrows = []
    for (sender, receiver), bodies in ALLOWED_MESSAGES.items():
        names = sorted(body.__name__ for body in bodies)
        kinds = [[name for name in names if (name in sequenced) is wanted] for wanted in (True, False)]
        rows.append(
            (str(sender), str(receiver), *(", ".join(f"`{name}`" for name in kind) for kind in kinds))
        )
        arrows.append(f"  {sender} -->|{len(names)} kinds| {receiver}")
    return paragraphs(
        "# Messages by role",
        fence("mermaid", "\n".join(["flowchart LR", *arrows])),
        "A member accepts a message only if the role that the sender's certificate proves may send it "
        "(`live/rpc/peer_permissions.py`). Pairs of roles that are not in the table exchange nothing. "
        "[Protocol](protocol.md) explains each message. *Sequenced* messages arrive exactly once and "
        "in order; "
        "*soft* messages may be lost.",
        table(("from", "to", "sequenced", "soft"), rows),
    )


def _diagram(first: str, arrows: Iterable[tuple[str, str]], last: Iterable[str]) -> str:
    lines = ["stateDiagram-v2", f"  [*] --> {first}", *(f"  {a} --> {b}" for a, b in arrows)]
    return fence("mermaid", "\n".join([*lines, *(f"  {name} --> [*]" for name in last)]))
