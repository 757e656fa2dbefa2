"""Tasks that are bound to a node ahead of their start, where cores are not held during transfers.

A bound task's input is staged in the node's rack; the task starts when it is there and the node has room, in
order of binding. Until then it takes room only of what the node shows (``AHEAD_PARTS``), and others may run.
"""

from collections.abc import Callable

from hanse.sim.worlds.physics import TaskState
from hanse.sim.worlds.policy_view import PolicyView


class BoundTasks:
    """The bound tasks of every node."""

    def __init__(self, view: PolicyView, place: Callable[[int, int], None]) -> None:
        self._view, self._physics, self._place = view, view.physics, place
        self.node: dict[int, int] = {}
        """Node that each bound task is bound to."""
        self._tasks: list[list[int]] = [[] for _ in range(view.node_count)]

    def add(self, task: int, node: int) -> None:
        """Bind a task to a node and stage its input."""
        self._tasks[node].append(task)
        self.node[task] = node
        self._view.bind(self._physics.job_of[task], node, 1)
        rack = self._physics.rack[node]
        has_input = self._physics.links.has_input(task, rack)
        if has_input or not self._physics.stage(task, rack, self._physics.now):
            self.start_ready(node)  # there is nothing to move

    def start_ready(self, node: int) -> None:
        """Start the bound tasks of a node that have their input and room, in order of binding."""
        for task in list(self._tasks[node]):
            waits = self._physics.attempts[task].state == TaskState.WAITING
            if waits and self._physics.has_place(self._physics.job_of[task], node):
                self._unbind(task)
                self._place(task, node)

    def clear(self, node: int) -> list[int]:
        """Unbind all tasks of a node and return them."""
        tasks = list(self._tasks[node])
        for task in tasks:
            self._unbind(task)
        return tasks

    def _unbind(self, task: int) -> None:
        node = self.node.pop(task)
        self._tasks[node].remove(task)
        self._view.bind(self._physics.job_of[task], node, -1)
