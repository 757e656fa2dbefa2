"""Earliest finish: every task goes where it is expected to finish first. Twin of ``compiled/finish.c``.

A job's run time alone on each class is estimated once, when it becomes ready. When it is tried, the expected
transfers to all racks are computed from the present flows of the links, and the kernel of
``policy/kernels/numpy_finish.py`` chooses nodes for all its waiting tasks; the largest input gets the first.

A node on which it would take WAIT_RATIO times its ideal is refused while the task has waited for less than
WAIT_SHARE of that; then the job is asked again a second later. The ideal is the least expected finish,
without neighbours, when the job became ready. The queue goes by expected work left, less what waiting makes
up for.

Tasks of gangs are placed one by one and do not wait. Ties go to the lowest node.
"""

from math import inf
from typing import Final

import numpy as np

from hanse.policy.finish_time.crowding_sums import CrowdedTask
from hanse.policy.finish_time.duration_rows import CLASSES, SLOPE
from hanse.policy.finish_time.duration_table import NO_KIND, SECONDS_MIN, EndedTask, size_of
from hanse.policy.finish_time.exact_math import exact_log
from hanse.policy.finish_time.waiting import cost_limit
from hanse.policy.hashing import hash_numbers
from hanse.policy.kernels import FinishJob, Floats, finish_choose, finish_ideal
from hanse.sim.worlds.earliest_finish.crowded_nodes import CrowdedNodes
from hanse.sim.worlds.earliest_finish.finish_history import FinishHistory
from hanse.sim.worlds.earliest_finish.finish_settings import PASS_US, FinishSettings
from hanse.sim.worlds.earliest_finish.transfer_times import expected_transfers, mean_bytes
from hanse.sim.worlds.physics import TaskState
from hanse.sim.worlds.policy_view import NOWHERE, WAIT, CentralPolicy, PolicyView

EXPLORED: Final = 1 << 32
"""Size of the draws by which jobs are explored."""


class EarliestFinish(CentralPolicy):
    """The policy and what it learns, which its history keeps."""

    def __init__(self, view: PolicyView, settings: FinishSettings, history: FinishHistory, seed: int) -> None:
        self._settings, self._history, self._seed = settings, history, seed
        self._table = history.make_table(settings, view.world.class_speed.tolist())
        self._crowding = history.make_crowding()
        self._nodes = CrowdedNodes(view, self._crowding)
        self._seconds: dict[int, Floats] = {}
        self._ideal: dict[int, float] = {}
        self._ready_at: dict[int, int] = {}
        self._plan: dict[int, int] = {}
        """Node of each waiting task."""
        self._following: list[int] = []
        """The nodes from the last to the first, where some of the waiting tasks are bound already."""
        self._plan_end = NOWHERE
        self._job: FinishJob | None = None
        self.pass_us = PASS_US if settings.wait_ratio > 0.0 else 0

    # --- the queue and the choice --------------------------------------------------------------------------

    def key(self, view: PolicyView, job: int, unfinished: int) -> int:
        """Return the expected work left, put back by the arrival; or the arrival."""
        arrival = int(view.work.job_arrival[job])
        if job not in self._ready_at:
            self._ready_at[job] = view.physics.now
            self._ideal[job] = finish_ideal(self._nodes.columns, self._describe(view, job, 1))
        if not self._settings.is_shortest_first:
            return arrival
        least = float(self._estimate(view, job).min())
        return int(unfinished * least * 1e6) + self._settings.ageing * arrival

    def begin(self, view: PolicyView, job: int) -> None:
        """Plan the nodes of all waiting tasks."""
        self._nodes.read_room()
        attempts = view.physics.attempts
        tasks = range(int(view.work.job_offset[job]), int(view.work.job_offset[job + 1]))
        waiting = [task for task in tasks if attempts[task].state == TaskState.WAITING]
        is_gang = bool(view.work.job_gang[job])
        self._job = self._describe(view, job, 1 if is_gang else len(waiting), self._is_explored(job))
        if not is_gang and not self._is_explored(job):
            self._job = self._with_limit(view, job, self._job)
        self._plan, self._plan_end = {}, NOWHERE
        if is_gang:
            return
        chosen, _ = finish_choose(self._nodes.columns, self._job)
        if view.has_ahead:
            self._following = list(reversed(chosen))
        sizes = view.work.task_bytes
        order = sorted(waiting[: len(chosen)], key=lambda task: -float(sizes[task]))
        self._plan = dict(zip(order, chosen, strict=True))
        if len(chosen) < len(waiting) and self._job.finish_max < inf:
            anywhere, _ = finish_choose(self._nodes.columns, _with_finish_max(self._job, inf))
            if len(anywhere) > len(chosen):  # there is room, but not a good one
                self._plan_end = WAIT

    def choose(self, view: PolicyView, job: int, task: int) -> int:
        """Return the planned node."""
        if not view.work.job_gang[job]:
            if view.has_ahead:
                return self._following.pop() if self._following else self._plan_end
            return self._plan.get(task, self._plan_end)
        assert self._job is not None, "begin comes before choose"
        self._nodes.read_room()
        chosen, _ = finish_choose(self._nodes.columns, self._job)
        return chosen[0] if chosen else NOWHERE

    def _describe(self, view: PolicyView, job: int, count: int, is_explored: bool = False) -> FinishJob:
        """Return the job as the kernel takes it, without a limit. An explored one goes to a rack drawn by the
        seed, whatever it costs."""
        work, crowding = view.work, self._crowding
        label, seconds, total = int(work.job_work_kind[job]), self._estimate(view, job).copy(), 0.0
        for each in seconds.tolist():
            total = total + each
        allowed = int(work.job_classes[job])
        barred = [not allowed >> at & 1 for at in range(len(seconds))]
        size = mean_bytes(view, job) if self._settings.uses_data else 0.0
        transfers = np.array(expected_transfers(view, job, size))
        cpu = int(work.job_cpu[job])
        if is_explored:
            seconds[:] = 0.0
            transfers = np.array(
                [float(hash_numbers(self._seed, job, rack + 1) >> 40) for rack in range(len(transfers))]
            )
        seconds[barred] = -1.0
        return FinishJob(
            count,
            cpu,
            int(work.job_memory[job]),
            int(work.job_gpu[job]),
            seconds,
            transfers,
            crowding.slopes,
            0.0 if is_explored else crowding.sensitivity(label),
            crowding.press(label) * (cpu / 1000.0),
            crowding.sensitivity(label) * (total / len(seconds)),
            0.0 if is_explored else self._settings.charge,
            is_debited=False,
        )

    def _with_limit(self, view: PolicyView, job: int, described: FinishJob) -> FinishJob:
        """Return the job with the longest finish that it accepts now."""
        if self._settings.wait_ratio <= 0.0:
            return described
        waited = (view.physics.now - self._ready_at[job]) * 1e-6
        limit = cost_limit(self._ideal[job], waited, self._settings.wait_ratio, self._settings.wait_share)
        return _with_finish_max(described, limit)

    def _estimate(self, view: PolicyView, job: int) -> Floats:
        """Return the expected seconds of a job's tasks on each class, estimated once."""
        found = self._seconds.get(job)
        if found is None:
            work = view.work
            size = mean_bytes(view, job) if self._settings.uses_sizes else 0.0
            kind = max(int(work.job_kind[job]), NO_KIND)
            estimate = int(work.job_estimate[job]) * 1e-6
            found = self._table.find_seconds(int(work.job_work_kind[job]), kind, size, estimate)
            self._seconds[job] = found
        return found

    def _is_explored(self, job: int) -> bool:
        return hash_numbers(self._seed, job, 0) >> 32 < self._settings.explores * EXPLORED

    # --- what it is told -----------------------------------------------------------------------------------

    def on_start(self, view: PolicyView, task: int, node: int) -> None:
        """Count the task on its node."""
        seconds = self._seconds[view.physics.job_of[task]]
        self._nodes.start(task, node, float(seconds[view.world.node_class[node]]))

    def on_input(self, _view: PolicyView, task: int, node: int) -> None:
        """Count the task as a neighbour."""
        self._nodes.run(task, node)

    def on_task_end(self, _view: PolicyView, task: int, node: int, run_us: int) -> None:
        """Note who was beside the task."""
        self._nodes.end(task, node, run_us)

    def on_lost(self, _view: PolicyView, task: int, node: int) -> None:
        """Forget the task's place."""
        self._nodes.remove(task, node)

    def on_job_end(self, view: PolicyView, job: int) -> None:
        """Learn from all tasks of the job."""
        work, physics = view.work, view.physics
        label, kind = int(work.job_work_kind[job]), max(int(work.job_kind[job]), NO_KIND)
        tasks = []
        for task in range(int(work.job_offset[job]), int(work.job_offset[job + 1])):
            at = int(view.world.node_class[physics.node[task]])
            seconds = (physics.end_time[task] - physics.run_time[task]) * 1e-6
            slow = 1.0
            if self._settings.learns_crowding:
                slow = self._crowding.slow_down(label, at, self._nodes.shares[task])
            size = float(work.task_bytes[task]) if self._settings.uses_sizes else 0.0
            tasks.append((task, EndedTask(at, seconds, slow, size)))
        self._table.add_job(label, kind, [ended for _, ended in tasks])
        if self._settings.learns_crowding:
            self._learn_crowding(label, kind, tasks)

    def _learn_crowding(self, label: int, kind: int, tasks: list[tuple[int, EndedTask]]) -> None:
        answer = self._table.answer(label, kind)
        crowded = [
            CrowdedTask(
                ended.node_class,
                exact_log(max(ended.seconds, SECONDS_MIN))
                - float(answer[CLASSES + ended.node_class])
                - float(answer[SLOPE]) * size_of(ended.input_bytes),
                self._nodes.shares[task],
            )
            for task, ended in tasks
        ]
        if self._crowding.add_job(label, crowded):
            self._history.crowding_answer[:] = self._crowding.answer
            self._nodes.show_all()


def _with_finish_max(job: FinishJob, limit: float) -> FinishJob:
    """Return the job with another limit."""
    return FinishJob(
        job.count, job.cpu, job.memory, job.gpu, job.class_seconds, job.rack_seconds, job.slopes,
        job.sensitivity, job.own_pressure, job.own_exposure, job.charge, limit, is_debited=False,
    )  # fmt: skip
