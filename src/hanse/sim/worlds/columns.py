"""Columns of a world and of the work in it: what the physics, the policies and the measures share.

Rows are C-contiguous NumPy arrays with the type named at each field (``i4``, ``i8``, ``f8``), because the
compiled physics reads them by address. Sizes: C clusters, K racks, N nodes, Q node classes, W kinds of work,
J jobs, T tasks, M templates, F outages, E needs. Times are whole microseconds from the start of the world,
rates are bytes per second, works are seconds on a node of speed 1 without neighbours.

*Rate of a task.* A running task does ``speed / (1 + m * g(D / B) + s * P / cores)`` seconds of work per
second: ``speed`` is ``template_speed`` of its template on the node's class; ``m`` and ``s`` are the job's
sensitivities to memory bandwidth and to polluted caches; ``D`` is the sum of the demands of all tasks on the
node, ``B`` its memory bandwidth; ``P`` is the pollution of the *other* tasks there, ``cores`` the node's
cores. ``g(u)`` is ``knee * u * u * u`` up to saturation (u = 1), then ``knee + slope * (u - 1)``.

*Transfers.* A task first reads its input from the nearest replica of its job: in the same rack at
``rack_flow_max``; in the same cluster at ``lan_flow_max`` through both racks' uplinks; else at
``wan_flow_max`` of the two clusters through uplink, both clusters' WAN access and uplink. Flows of one link
share it equally; a flow has the least of its links' shares and its own maximum. Without a replica nothing is
read. ``holds_cores`` says if a task holds its cores while it reads.
"""

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
SmallInts = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.uint64]

REPLICAS_MAX = 4
"""Replicas of one job's input."""
NODE_CLASSES_MAX = 64
"""Node classes of a world: a job's allowed classes are the bits of one word."""


NEVER = 1 << 62
"""A time that does not come."""


class WorldColumns(msgspec.Struct, frozen=True, eq=False):
    """Nodes, racks, clusters and links of a world."""

    cluster_names: tuple[str, ...]
    class_names: tuple[str, ...]
    work_kind_names: tuple[str, ...]
    node_cluster: SmallInts
    """[N] i4 cluster; nodes of a cluster are neighbours in this order, and so are those of a rack."""
    node_rack: SmallInts
    """[N] i4 rack, numbered through the whole world."""
    node_class: SmallInts
    """[N] i4 node class."""
    node_cpu: Ints
    """[N] i8 milli-CPU."""
    node_memory: Ints
    """[N] i8 bytes."""
    node_gpu: Ints
    """[N] i8 whole GPUs."""
    node_bandwidth: Floats
    """[N] f8 memory bandwidth."""
    rack_cluster: SmallInts
    """[K] i4 cluster of each rack."""
    rack_uplink: Floats
    """[K] f8 bytes per second from a rack to the rest of its cluster."""
    cluster_wan: Floats
    """[C] f8 bytes per second of a cluster's access to the others."""
    wan_flow_max: Floats
    """[C, C] f8 most that one flow between two clusters has; unused on the diagonal."""
    round_trip: Ints
    """[C, C] i8 round trip in microseconds; on the diagonal within the cluster."""
    rack_flow_max: float
    """Most that one flow within a rack has."""
    lan_flow_max: float
    """Most that one flow between racks of a cluster has."""
    class_speed: Floats
    """[W, Q] f8 mean speed of a kind of work on a node class: the published constants of the hardware. A
    policy may know them only where a table says so."""
    knee: float
    """Slow-down at saturated memory bandwidth, for sensitivity 1."""
    slope: float
    """Slow-down per unit of demand beyond saturation, for sensitivity 1."""
    holds_cores: bool
    """True if a task holds its cores while it reads its input."""


class WorkColumns(msgspec.Struct, frozen=True, eq=False):
    """Jobs in order of arrival, each with at least one task, and the outages of nodes.

    Fields marked *hidden* are for the physics and for policies that are called an oracle or a bound.
    """

    name: str
    """Traces and settings that it was made from, in one line."""
    job_arrival: Ints
    """[J] i8 arrival."""
    job_home: SmallInts
    """[J] i4 cluster in which it was submitted."""
    job_kind: SmallInts
    """[J] i4 kind of the job as its submitter names it (program and group); -1: a job without history."""
    job_work_kind: SmallInts
    """[J] i4 kind of work, a label that the submitter gives."""
    job_template: SmallInts
    """[J] i4 row of ``template_speed``; hidden."""
    job_offset: Ints
    """[J+1] i8 bounds of the jobs' tasks."""
    job_cpu: Ints
    """[J] i8 milli-CPU of each task."""
    job_memory: Ints
    """[J] i8 bytes of each task."""
    job_gpu: Ints
    """[J] i8 GPUs of each task."""
    job_classes: Flags
    """[J] u8 bit q: may run on node class q."""
    job_gang: SmallInts
    """[J] i4 0: no gang; 1: all tasks start together in one cluster; 2: in one rack; 3: on one node."""
    job_deadline: Ints
    """[J] i8 microseconds after the arrival; 0: none. It is measured, never enforced."""
    job_estimate: Ints
    """[J] i8 submitter's estimate of a task's run time in microseconds; 0: none."""
    needs_offset: Ints
    """[J+1] i8 bounds of each job's entries in ``needs``."""
    needs: Ints
    """[E] i8 earlier jobs that must end before this one may start."""
    replica_rack: SmallInts
    """[J, REPLICAS_MAX] i4 racks that hold the input; -1: no such replica."""
    task_bytes: Floats
    """[T] f8 bytes of input; a policy may know them."""
    task_work: Floats
    """[T] f8 seconds on a node of speed 1 without neighbours; hidden."""
    job_demand: Floats
    """[J] f8 memory bandwidth demanded by one task; hidden."""
    job_bandwidth_sensitivity: Floats
    """[J] f8 ``m``; hidden."""
    job_cache_sensitivity: Floats
    """[J] f8 ``s``; hidden."""
    job_pollution: Floats
    """[J] f8 cores' worth of cache pollution by one task; hidden."""
    template_speed: Floats
    """[M, Q] f8 true speed of a template on a node class; hidden."""
    outage_node: SmallInts
    """[F] i4 node that fails, in order of time; its tasks start again from nothing."""
    outage_from: Ints
    """[F] i8 start of each outage."""
    outage_until: Ints
    """[F] i8 end of each outage."""

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.job_arrival)

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return len(self.task_work)


class WorldOutcome(msgspec.Struct, frozen=True, eq=False):
    """Outcome of a run in a world: places and times of every task's last attempt, and sums over all."""

    node: SmallInts
    """[T] i4 node; -1: never started (only in a run that was stopped)."""
    start: Ints
    """[T] i8 moment at which it took its place."""
    run: Ints
    """[T] i8 moment at which its input had arrived."""
    end: Ints
    """[T] i8 end; -1: none."""
    launches: int
    """Starts, with those that an outage undid."""
    wasted_core_us: int
    """Allocated core-microseconds of attempts that an outage ended."""
    bytes_rack: float
    """Bytes read within racks."""
    bytes_lan: float
    """Bytes read between racks of a cluster."""
    bytes_wan: float
    """Bytes read between clusters."""
    messages: int
    """Messages between scheduler, clusters and nodes; 0 for policies that are computed without any."""
    message_bytes: int
    decision_ns: Ints
    """[<= J] i8 processor time of the policy for each job's arrival; differs between equal runs."""
    complete: bool
    """False if the run was stopped early."""
    lost: Ints = msgspec.field(default_factory=lambda: np.zeros((0, 5), np.int64))
    """[L, 5] i8 attempts that an outage undid: task, node, start, run or -1, end. A gang starts again as a
    whole, so attempts that had ended may be among them."""
