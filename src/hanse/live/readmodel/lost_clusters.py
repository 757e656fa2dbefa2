"""Attempts in a cluster that the broker has given up: only a decision per group reports their end."""

from typing import TYPE_CHECKING, Final

from hanse.api.rows import FAILED
from hanse.core.broker.loss_policy import LOST
from hanse.live.readmodel.live_job import LiveJob
from hanse.model.decision import Decision, DecisionKind
from hanse.model.ids import task_id
from hanse.model.messages import AttemptEnd, Outcome

if TYPE_CHECKING:
    from hanse.live.readmodel.projector import Projector

_REASON_ENDINGS: Final = (" cannot be reached", " has left the league")
"""Endings of such a decision's reason, after the cluster's name (``core.broker.cluster_eligibility``)."""


def is_cluster_given_up(decision: Decision) -> bool:
    """Return True if a decision reports that a broker has given up a cluster."""
    has_ended = decision.kind is DecisionKind.MOVED or decision.reason.startswith(LOST)
    return has_ended and decision.reason.endswith(_REASON_ENDINGS)


def give_up_cluster(projector: "Projector", job: LiveJob, decision: Decision) -> None:
    """End all attempts of a group in the cluster: their tasks are queued again, or have failed."""
    reason = decision.reason.removeprefix(LOST)
    cluster = projector.cluster_number(reason.partition(" ")[0])
    for index in job.attempts_at(decision.group, cluster):
        if job.is_loss_final():  # in a gang only one task fails, and this ends the others
            end = AttemptEnd(task_id(job.id, index), job.attempt[index], Outcome.LOST, note=reason)
            projector.settle_task(job, index, FAILED, end)
        else:
            projector.requeue(job, index)
