"""Items with a time each, of which the earliest is wanted. An item is at most once in it."""

import heapq

from hanse.sim.worlds.columns import NEVER


class EventTimes:
    """Times of items, ordered by (time, tie). A superseded time stays in the heap until it comes to the
    top."""

    def __init__(self) -> None:
        self.times: dict[int, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, int]] = []

    def set(self, item: int, time: int, tie: int) -> None:
        """Add an item, or give it another time."""
        if self.times.get(item) != (time, tie):
            self.times[item] = (time, tie)
            heapq.heappush(self._heap, (time, tie, item))

    def remove(self, item: int) -> None:
        """Take an item out, if it is in."""
        self.times.pop(item, None)

    def first(self) -> tuple[int, int, int]:
        """Return (time, tie, item) of the earliest item; its time is ``NEVER`` if there is none."""
        while self._heap:
            time, tie, item = self._heap[0]
            if self.times.get(item) == (time, tie):
                return self._heap[0]
            heapq.heappop(self._heap)
        return NEVER, 0, -1
