"""Expected transfers at the present flows of the links: twin of ``compiled/transfers.c``."""

from hanse.policy.finish_time.transfer import LinkEstimate
from hanse.sim.worlds.policy_view import PolicyView


def expected_transfers(view: PolicyView, job: int, size: float, newcomers: int = 1) -> list[float]:
    """Return the seconds in which a task of a job would read so many bytes in each rack, from the nearest
    replica, at the present flows and ``newcomers`` more."""
    world, links = view.world, view.physics.links
    clusters = world.rack_cluster.tolist()
    seconds = []
    for rack, near in enumerate(clusters):
        # a task number that is not there: nothing is staged for it
        source = links.find_source(-1, job, rack) if size > 0.0 else -1
        if source < 0:
            seconds.append(0.0)
            continue
        far = clusters[source]
        rate, path = world.rack_flow_max, []
        if source != rack:
            rate = world.lan_flow_max if far == near else float(world.wan_flow_max[far, near])
            path = [source, *([len(clusters) + far, len(clusters) + near] if far != near else []), rack]
        for link in path:
            found = links.links[link]
            rate = min(rate, LinkEstimate(found.capacity, len(found.flows)).find_share(newcomers))
        seconds.append(size / rate)
    return seconds


def mean_bytes(view: PolicyView, job: int) -> float:
    """Return the mean input of a job's tasks."""
    first, past = view.work.job_offset[job : job + 2].tolist()
    total = 0.0
    for size in view.work.task_bytes[first:past].tolist():
        total = total + size
    mean: float = total / (past - first)
    return mean
