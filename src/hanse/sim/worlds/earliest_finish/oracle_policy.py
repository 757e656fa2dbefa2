"""Oracle: earliest finish with the truth about every task. Twin of ``compiled/oracle.c``.

It knows each task's work, its speed on every class, its demand and sensitivities, and the same of all tasks
placed on a node with the work that they have left. The cost of a node is the task's own finish, if all that
are placed there ran at once, and NEIGHBOUR_CHARGE of what its neighbours lose. It knows nothing of future
arrivals, and transfers are expected at the present flows, so it is no bound: see ``bound_policy``.

It waits as earliest-finish does; its ideal is the best node with the input in the rack. The queue goes by the
true work left, less what waiting makes up for. Ties go to the lowest node."""

from math import inf

import msgspec

from hanse.policy.finish_time.waiting import WAIT_RATIO, WAIT_SHARE, cost_limit
from hanse.policy.queue_orders import WORK_AGEING
from hanse.sim.worlds.earliest_finish.finish_settings import NEIGHBOUR_CHARGE, PASS_US
from hanse.sim.worlds.earliest_finish.transfer_times import expected_transfers
from hanse.sim.worlds.physics import TaskState
from hanse.sim.worlds.policy_view import NOWHERE, WAIT, CentralPolicy, PolicyView


class OracleSettings(msgspec.Struct, frozen=True):
    """Settings, as ``oracle_options_t`` has them."""

    charge: float = NEIGHBOUR_CHARGE
    wait_ratio: float = WAIT_RATIO
    """0: no task waits for a better place."""
    wait_share: float = WAIT_SHARE
    is_shortest_first: bool = True
    ageing: int = WORK_AGEING

    def numbers(self) -> tuple[float, ...]:
        """Return the settings for C."""
        return (
            self.charge,
            self.wait_ratio,
            self.wait_share,
            float(self.is_shortest_first),
            float(self.ageing),
        )


class _NodeSums(msgspec.Struct):
    """Demand of the tasks placed on a node, and what they have to lose at ``at``."""

    at: int = 0
    demand: float = 0.0
    pollution: float = 0.0
    by_bandwidth: float = 0.0
    """Sum of seconds left at speed times sensitivity; ``_rate``: its decrease per second."""
    by_bandwidth_rate: float = 0.0
    by_cache: float = 0.0
    by_cache_rate: float = 0.0


class OraclePolicy(CentralPolicy):
    """The policy."""

    def __init__(self, view: PolicyView, settings: OracleSettings) -> None:
        self._settings = settings
        self._sums: dict[int, _NodeSums] = {node: _NodeSums() for node in range(view.node_count)}
        self._stale: dict[int, None] = {}
        self._ready_at: dict[int, int] = {}
        self._rack_seconds: list[float] = []
        self._speeds = view.work.template_speed.tolist()
        self.pass_us = PASS_US if settings.wait_ratio > 0.0 else 0

    def key(self, view: PolicyView, job: int, _unfinished: int) -> int:
        """Return the true work left, put back by the arrival; or the arrival."""
        arrival = int(view.work.job_arrival[job])
        self._ready_at.setdefault(job, view.physics.now)
        if not self._settings.is_shortest_first:
            return arrival
        total = 0.0
        for task in range(int(view.work.job_offset[job]), int(view.work.job_offset[job + 1])):
            if view.physics.attempts[task].state != TaskState.DONE:
                total = total + float(view.work.task_work[task])
        best = max(self._speeds[view.work.job_template[job]])
        return int(total / best * 1e6) + self._settings.ageing * arrival

    def begin(self, view: PolicyView, job: int) -> None:
        """Compute the transfers of one byte."""
        self._rack_seconds = expected_transfers(view, job, 1.0)

    def choose(self, view: PolicyView, job: int, task: int) -> int:
        """Return the node of least cost on which the task finishes soon enough."""
        work, limit = view.work, inf
        if self._settings.wait_ratio > 0.0 and not work.job_gang[job]:
            waited = (view.physics.now - self._ready_at[job]) * 1e-6
            ideal = self._find_ideal(view, job, task)
            limit = cost_limit(ideal, waited, self._settings.wait_ratio, self._settings.wait_share)
        found, least, has_room = NOWHERE, inf, False
        speeds, size = self._speeds[work.job_template[job]], float(work.task_bytes[task])
        for node in range(view.node_count):
            if not view.fits(job, node):
                continue
            has_room = True
            transfer = size * self._rack_seconds[view.world.node_rack[node]]
            alone = float(work.task_work[task]) / speeds[view.world.node_class[node]]
            if transfer + alone >= least or transfer + alone > limit:
                continue
            finish, cost = self._find_cost(view, job, node, alone, transfer)
            if finish <= limit and cost < least:
                found, least = node, cost
        return WAIT if found == NOWHERE and has_room else found

    def on_start(self, _view: PolicyView, _task: int, node: int) -> None:
        """Compute the node's sums anew before they are needed."""
        self._stale[node] = None

    def on_input(self, _view: PolicyView, _task: int, node: int) -> None:
        """Compute the node's sums anew before they are needed."""
        self._stale[node] = None

    def on_task_end(self, _view: PolicyView, _task: int, node: int, _run_us: int) -> None:
        """Compute the node's sums anew before they are needed."""
        self._stale[node] = None

    def on_lost(self, _view: PolicyView, _task: int, node: int) -> None:
        """Compute the node's sums anew before they are needed."""
        self._stale[node] = None

    def _find_ideal(self, view: PolicyView, job: int, task: int) -> float:
        """Return the seconds of a task alone on the best node, with its input in the rack."""
        world, work, best = view.world, view.work, inf
        speeds = self._speeds[work.job_template[job]]
        for node, at in enumerate(world.node_class.tolist()):
            same = node and at == int(world.node_class[node - 1])
            if same or not int(work.job_classes[job]) >> at & 1:
                continue
            used = float(work.job_demand[job]) / float(world.node_bandwidth[node])
            slow = 1.0 + float(work.job_bandwidth_sensitivity[job]) * _bend(view, used)
            best = min(best, float(work.task_work[task]) / speeds[at] * slow)
        if int(work.replica_rack[job, 0]) < 0:
            return best
        return best + float(work.task_bytes[task]) / world.rack_flow_max

    def _find_cost(
        self, view: PolicyView, job: int, node: int, alone: float, transfer: float
    ) -> tuple[float, float]:
        """Return a task's own finish on a node, and its cost."""
        if node in self._stale:
            del self._stale[node]
            self._sums[node] = self._settle(view, node)
        sums, work = self._sums[node], view.work
        cores, bandwidth = int(view.world.node_cpu[node]) / 1000.0, float(view.world.node_bandwidth[node])
        before = _bend(view, sums.demand / bandwidth)
        after = _bend(view, (sums.demand + float(work.job_demand[job])) / bandwidth)
        passed = (view.physics.now - sums.at) * 1e-6
        by_bandwidth = sums.by_bandwidth - sums.by_bandwidth_rate * passed
        by_cache = sums.by_cache - sums.by_cache_rate * passed
        finish = transfer + alone * (
            1.0
            + float(work.job_bandwidth_sensitivity[job]) * after
            + float(work.job_cache_sensitivity[job]) * sums.pollution / cores
        )
        lost = by_bandwidth * (after - before) + by_cache * (float(work.job_pollution[job]) / cores)
        return finish, finish + self._settings.charge * lost

    def _settle(self, view: PolicyView, node: int) -> _NodeSums:
        """Return the sums of the tasks placed on a node, in order of their starts."""
        physics, work = view.physics, view.work
        sums = _NodeSums(physics.now)
        for task in physics.placed[node]:
            attempt, job = physics.attempts[task], physics.job_of[task]
            runs = attempt.state == TaskState.RUNNING
            left = physics.work_left(task) if runs else float(work.task_work[task])
            rate = attempt.rate if runs else 0.0
            speed = self._speeds[work.job_template[job]][view.world.node_class[node]]
            bandwidth = float(work.job_bandwidth_sensitivity[job])
            cache = float(work.job_cache_sensitivity[job])
            sums.demand = sums.demand + float(work.job_demand[job])
            sums.pollution = sums.pollution + float(work.job_pollution[job])
            sums.by_bandwidth = sums.by_bandwidth + left / speed * bandwidth
            sums.by_bandwidth_rate = sums.by_bandwidth_rate + rate / speed * bandwidth
            sums.by_cache = sums.by_cache + left / speed * cache
            sums.by_cache_rate = sums.by_cache_rate + rate / speed * cache
        return sums


def _bend(view: PolicyView, used: float) -> float:
    """Return the slow-down, less 1, for sensitivity 1 at a share of the memory bandwidth."""
    knee, slope = view.world.knee, view.world.slope
    return knee * used * used * used if used <= 1.0 else knee + slope * (used - 1.0)
