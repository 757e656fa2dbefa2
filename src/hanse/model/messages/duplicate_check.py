"""Whether a submission that was never acknowledged has been made elsewhere: a question between brokers."""

import msgspec

from hanse.model.ids import JobId


class DuplicateQuery(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="seek"):
    """Do you know a job of this client id, under another number?"""

    job: JobId
    """The sender's own."""
    client_id: str


class DuplicateReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="sought"):
    """The answer."""

    job: JobId
    """As asked."""
    known_job: int
    """The number under which it is known; 0: it is not."""
