"""Messages with which a broker waits for the end of jobs of another broker."""

import msgspec

from hanse.model.ids import JobId


class WatchJobs(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="watch"):
    """Request to be told when these jobs end."""

    round: int
    jobs: tuple[JobId, ...]


class JobEnded(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="watched"):
    """End of a job that was asked about; -1: unknown here, in reply to that round of asking only."""

    round: int
    job: JobId
    state: int
