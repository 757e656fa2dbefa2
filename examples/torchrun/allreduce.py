"""Sum of the ranks over a torch.distributed group; ``job.yaml`` starts it on every rank of a gang."""

import os

import torch
import torch.distributed as dist


def main() -> None:
    """Form the group, add all ranks, and say the sum."""
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total)
    where = f"node {os.environ['HANSE_NODE']} of {os.environ['HANSE_CLUSTER']}"
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {where}: the ranks add up to {total.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
