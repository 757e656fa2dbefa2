"""Messages that check whether an unacknowledged submission has also been made at another broker."""

import msgspec

from hanse.model.ids import JobId


class DuplicateQuery(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="seek"):
    """Question for a job with this client id, under another number."""

    job: JobId
    """Sender's own job."""
    client_id: str


class DuplicateReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sought"):
    """Reply to a ``DuplicateQuery``."""

    job: JobId
    """Job of the question."""
    known_job: int
    """Number of the job with that client id; 0: none is known."""
