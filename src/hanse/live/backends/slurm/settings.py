"""Settings of a cluster over Slurm in the league file."""

from typing import Final

import msgspec

SECOND: Final = 1_000_000


class SlurmSettings(msgspec.Struct, frozen=True):
    """Access to Slurm, and options of every job."""

    driver: str = "cli"
    """``cli``: the commands ``sbatch``, ``squeue``...; ``rest``: a slurmrestd."""
    conf: str = ""
    """The cluster's ``slurm.conf`` for the commands; empty: Slurm's default."""
    url: str = ""
    """Address of slurmrestd: ``unix:PATH`` or ``http://HOST:PORT``."""
    token_file: str = ""
    """A file with the token for slurmrestd, read before every request, so that it can be renewed."""
    token_user: str = ""
    """User of the token; empty: the user that runs the jobs."""
    api: str = ""
    """The version of the REST interface; empty: the newest that both sides know."""
    partition: str = ""
    """Partition of the jobs and nodes; empty: Slurm's default partition, and all nodes."""
    account: str = ""
    shared_dir: str = ""
    """A directory that this daemon and all nodes see under the same name, for orders, records and output.
    Empty: in the runner's own directory, which serves only where the nodes are this machine."""
    poll: int = SECOND
    """Microseconds between two polls of Slurm while the runner has attempts."""
    time_limit: int = 0
    """Microseconds after which Slurm ends a job; 0: the limit of the partition."""
    begin_max: int = 60 * SECOND
    """Microseconds after which a start is given back that Slurm says runs and that has not begun, or that
    waits for a node that is closed or for what a partition, account or QOS does not allow. Longer than the
    slowest prolog of the cluster."""
    array_max: int = 200
    """Tasks in one job array; 1: no arrays. The cluster's ``MaxArraySize`` must be larger."""
