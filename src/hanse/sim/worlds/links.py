"""Transfers that share links: racks' uplinks and clusters' access to the others.

Flows of one link share it equally. The share is computed again when the number of flows differs from that at
the last computation by more than a tenth (``REFRESH_PARTS``): an approximation, by which the flows of a link
may together have up to a tenth more or less than its capacity, and for which a change costs ten flows' work
and not all flows'. With fewer than ten flows it is exact. The rate of a flow is the least of its links'
shares and of its own maximum, always."""

from typing import Final

from hanse.sim.worlds.columns import NEVER, REPLICAS_MAX, WorkColumns, WorldColumns
from hanse.sim.worlds.event_times import EventTimes

REFRESH_PARTS: Final = 10
"""A link's share is computed again when its flows have changed by more than one part in so many."""
MICROSECONDS_MAX: Final = 1e15
"""Time of an event that is no longer told apart from never, in microseconds from now."""


def time_after(now: int, left: float, rate: float) -> int:
    """Return the first whole microsecond at which ``left`` is gone at ``rate`` per second."""
    if left <= 0.0:
        return now
    microseconds = left / rate * 1e6
    if not microseconds < MICROSECONDS_MAX:
        return NEVER - 1
    whole = int(microseconds)
    return now + whole + (whole < microseconds)


class SharedLink:
    """One link."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.share = capacity
        """Bytes per second that a flow got at the last refresh."""
        self.counted = 0
        """Flows at the last refresh."""
        self.flows: dict[int, None] = {}
        """Tasks whose transfers use the link."""


class Transfer:
    """A task's transfer under way."""

    def __init__(self, now: int, size: float, flow_max: float, distance: int, target: int) -> None:
        self.left = size
        """Bytes left at ``settled_at``."""
        self.rate = 0.0
        self.settled_at = now
        self.flow_max = flow_max
        self.distance = distance
        """0 within a rack, 1 within a cluster, 2 beyond."""
        self.target = target
        """Rack."""
        self.links: list[int] = []


class SharedLinks:
    """All links and transfers of a world. Link numbers: racks' uplinks first, then clusters' access."""

    def __init__(self, world: WorldColumns, work: WorkColumns) -> None:
        self._rack_cluster = world.rack_cluster.tolist()
        self._flow_max = world.wan_flow_max.tolist()
        self._rack_flow_max, self._lan_flow_max = world.rack_flow_max, world.lan_flow_max
        self._replicas = work.replica_rack.tolist()
        self._bytes = work.task_bytes.tolist()
        self.links = [SharedLink(each) for each in world.rack_uplink.tolist() + world.cluster_wan.tolist()]
        self.transfers: dict[int, Transfer] = {}
        self.arrivals = EventTimes()
        """Ends of transfers, by task."""
        self.staged_rack: dict[int, int] = {}
        """Rack that staging has brought a task's input to."""
        self.bytes = [0.0, 0.0, 0.0]
        """Bytes read so far, by distance."""

    def has_input(self, task: int, rack: int) -> bool:
        """Return whether a task can run in a rack without a transfer."""
        return not self._bytes[task] > 0.0 or self.staged_rack.get(task) == rack

    def find_source(self, task: int, job: int, rack: int) -> int:
        """Return the rack of the nearest replica: this one, else the first in its cluster, else the first of
        those with the fastest flows; -1 if there is no replica."""
        cluster = self._rack_cluster[rack]
        found, nearest, fastest = -1, 3, -1.0
        for source in [*self._replicas[job][:REPLICAS_MAX], self.staged_rack.get(task, -1)]:
            if source < 0:
                continue
            distance = 0 if source == rack else 1 if self._rack_cluster[source] == cluster else 2
            speed = 0.0 if distance < 2 else self._flow_max[self._rack_cluster[source]][cluster]
            if distance < nearest or (distance == nearest and speed > fastest):
                found, nearest, fastest = source, distance, speed
        return found

    def start(self, task: int, job: int, rack: int, now: int) -> bool:
        """Begin to move a task's input to a rack; False if there is nothing to move."""
        source = -1 if self.has_input(task, rack) else self.find_source(task, job, rack)
        if source < 0:
            return False
        near, far = self._rack_cluster[rack], self._rack_cluster[source]
        wans = [len(self._rack_cluster) + far, len(self._rack_cluster) + near]
        distance = 0 if source == rack else 1 if near == far else 2
        flow_max = (self._rack_flow_max, self._lan_flow_max, self._flow_max[far][near])[distance]
        flow = self.transfers[task] = Transfer(now, self._bytes[task], flow_max, distance, rack)
        flow.links = [[], [source, rack], [source, *wans, rack]][distance]
        for link in flow.links:
            self.links[link].flows[task] = None
        for link in flow.links:
            self._refresh(self.links[link], now)
        self._adjust(task, now)
        return True

    def stop(self, task: int, now: int) -> Transfer:
        """End a transfer, finished or not, and return it."""
        flow = self.transfers[task]
        self._settle(flow, now)
        finished = self.arrivals.times[task][0] <= now
        self.bytes[flow.distance] += self._bytes[task] if finished else self._bytes[task] - flow.left
        self.arrivals.remove(task)
        for link in flow.links:
            del self.links[link].flows[task]
        for link in flow.links:
            self._refresh(self.links[link], now)
        return self.transfers.pop(task)

    def bytes_left(self, task: int, now: int) -> float:
        """Return the bytes left of a transfer under way."""
        flow = self.transfers[task]
        return flow.left - flow.rate * ((now - flow.settled_at) * 1e-6)

    def _settle(self, flow: Transfer, now: int) -> None:
        flow.left -= flow.rate * ((now - flow.settled_at) * 1e-6)
        flow.settled_at = now

    def _refresh(self, link: SharedLink, now: int) -> None:
        count = len(link.flows)
        if abs(count - link.counted) * REFRESH_PARTS <= link.counted:
            return
        link.counted = count
        link.share = link.capacity / count if count else link.capacity
        for task in link.flows:
            self._adjust(task, now)

    def _adjust(self, task: int, now: int) -> None:
        """Give a flow the rate that its links' shares allow."""
        flow = self.transfers[task]
        rate = min([flow.flow_max, *(self.links[link].share for link in flow.links)])
        if rate != flow.rate:
            self._settle(flow, now)
            flow.rate = rate
            self.arrivals.set(task, time_after(now, flow.left, rate), task)
