"""A central policy's interface: what it may ask about a world, and what it is asked and told.

The twin of ``policy_t`` in ``compiled/world.h``.
"""

from typing import Final

from hanse.sim.worlds.columns import WorkColumns, WorldColumns
from hanse.sim.worlds.physics import WorldPhysics

NOWHERE: Final = -1
"""Answer of ``choose``: no node has room, for no job of the same shape."""
WAIT: Final = -2
"""Answer of ``choose``: there is room, and waiting for a better place is better."""
CLOSED: Final = -1
"""Shown milli-CPU of a node that may not be chosen: it is down, or a gang cannot use it."""
AHEAD_PARTS: Final = 4
"""One part in so many of a node may be bound to tasks beyond what is free, where cores are not held during
transfers. More would fill nodes with tasks that could start earlier elsewhere; none would leave cores idle
during each transfer."""


class PolicyView:
    """A world as a policy sees it."""

    def __init__(self, physics: WorldPhysics) -> None:
        self.world: WorldColumns = physics.world
        self.work: WorkColumns = physics.work
        self.physics = physics
        """True state; only what ``compiled/world.h`` does not call hidden is for all policies."""
        self.has_ahead = not physics.world.holds_cores
        self._whole = [list(amounts) for amounts in physics.free]
        self._bound = [[0] * len(amounts) for amounts in physics.free]
        self._unbound = [list(amounts) for amounts in physics.free]
        self._ahead = [list(amounts) for amounts in physics.free]
        self.room = self._unbound
        """Milli-CPU, bytes and GPUs that a policy may use, by node: what is free and not bound; when no node
        has room, also what may be bound beyond it."""
        for node in range(self.node_count):
            self.show(node)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.room[0])

    def fits(self, job: int, node: int) -> bool:
        """Return whether a task of a job may be placed on a node now."""
        need = self.physics.need
        enough = all(room[node] >= each[job] for room, each in zip(self.room, need, strict=True))
        return enough and self.physics.is_allowed(job, node)

    def show(self, node: int) -> None:
        """Bring the room of a node up to date."""
        for kind, whole in enumerate(self._whole):
            unbound = self.physics.free[kind][node] - self._bound[kind][node]
            self._unbound[kind][node] = unbound
            self._ahead[kind][node] = min(unbound + whole[node] // AHEAD_PARTS, whole[node])
        if self.physics.outages[node]:
            self._unbound[0][node] = self._ahead[0][node] = CLOSED

    def show_ahead(self, ahead: bool) -> None:
        """Show what may be bound ahead as room, or no longer."""
        self.room = self._ahead if ahead else self._unbound

    def close(self, node: int) -> None:
        """Show no room on a node."""
        self.room[0][node] = CLOSED

    def bind(self, job: int, node: int, sign: int) -> None:
        """Bind a task to a node ahead of its start, or (-1) no longer."""
        for bound, need in zip(self._bound, self.physics.need, strict=True):
            bound[node] += sign * need[job]
        self.show(node)

    def debit(self, job: int, node: int) -> None:
        """Take a task's amounts off a node's room, until it is brought up to date."""
        for room, need in zip(self.room, self.physics.need, strict=True):
            room[node] -= need[job]


class CentralPolicy:
    """A policy that decides for all clusters with fresh information. It must be able to ``choose``.

    For a job that is tried ``begin`` is called, then for each waiting task in order of number ``choose``, and
    after each start ``on_start``. For a gang ``choose`` is asked for all tasks before any starts. Where cores
    are not held during transfers, ``on_start`` comes later: when the input is there and the node has room. An
    answer ``NOWHERE`` must not change the policy: the compiled run asks less often."""

    pass_us = 0
    """Jobs that answered WAIT are asked again at whole multiples of this time; 0: it never answers so."""

    def key(self, _view: PolicyView, _job: int, _unfinished: int) -> int | None:
        """Return a job's place in the queue, smaller first, ties by job; None: the order of the settings."""
        return None

    def begin(self, view: PolicyView, job: int) -> None:
        """Prepare for the choices for a job."""

    def choose(self, view: PolicyView, job: int, task: int) -> int:
        """Return a node, ``NOWHERE`` or ``WAIT``."""
        raise NotImplementedError

    def on_arrival(self, view: PolicyView, job: int) -> None:
        """Learn that a job has arrived; jobs that it needs may still run."""

    def on_start(self, view: PolicyView, task: int, node: int) -> None:
        """Learn that a task has its place."""

    def on_input(self, view: PolicyView, task: int, node: int) -> None:
        """Learn that a task runs from now on."""

    def on_task_end(self, view: PolicyView, task: int, node: int, run_us: int) -> None:
        """Learn that a task ends after running so long; it is still among its neighbours."""

    def on_lost(self, view: PolicyView, task: int, node: int) -> None:
        """Learn that a task loses its place by an outage; it is still among its neighbours."""

    def on_job_end(self, view: PolicyView, job: int) -> None:
        """Learn that the last task of a job has ended."""
