"""Sum of the ranks of an MPI world; ``job.yaml`` starts it on every rank of a gang."""

import os

from mpi4py import MPI


def main() -> None:
    """Add all ranks, and say the sum."""
    world = MPI.COMM_WORLD
    total = world.allreduce(world.Get_rank())
    where = f"node {os.environ['HANSE_NODE']} of {os.environ['HANSE_CLUSTER']}"
    line = f"rank {world.Get_rank()} of {world.Get_size()} on {where}: the ranks add up to {total}\n"
    os.write(1, line.encode())  # whole lines: those of all ranks go through one pipe


if __name__ == "__main__":
    main()
