"""Table of all fields of the league file: type, default, limits, meaning and an example of each.

The parser (``league.reader``) takes its lists of known fields from here, and the reference page of
the league file is generated from here (``python -m tools.reference``). The fields of ``timings`` are those of
the record ``Timings``; the fields of a Slurm backend are beside their own parser.
"""

from typing import Any, Final

from hanse.league.backend_kinds import BACKENDS
from hanse.league.config import UID_MAX, BackendEntry, PolicyConfig, UserRange
from hanse.model.field_descriptions import FileField
from hanse.model.hardware.devices import DEVICES_PER_NODE_MAX
from hanse.model.ids import BROKER_NUMBER_MAX
from hanse.model.resources import CUSTOM_KINDS_MAX, GPUS_MAX
from hanse.registry import CLUSTER_RANKERS, NODE_RANKERS, PLACERS, QUEUE_ORDERS, SIZERS, Registry

NODES_MAX: Final = 100_000
"""Nodes of one cluster."""
CLUSTERS_MAX: Final = 1_000
RUNNERS_MAX: Final = 1_000
"""Runners of one cluster on machines of their own."""
NAME_CHARACTERS_MAX: Final = 63
HOST_CHARACTERS_MAX: Final = 255
SANDBOXES: Final = ("auto", "none", "namespace", "bwrap")
LIMITS: Final = ("auto", "v2", "v1", "rlimit")
POLICIES: Final[dict[str, Registry[Any]]] = {
    "order": QUEUE_ORDERS,
    "placer": PLACERS,
    "rank": CLUSTER_RANKERS,
    "sizer": SIZERS,
    "node_ranker": NODE_RANKERS,
}
"""Kinds of policies that the file chooses, with the registry of each."""

_NAME_LIMITS: Final = f"1 to {NAME_CHARACTERS_MAX} letters, digits, `-`, `_` or `.`"
_MEMBER_NAME: Final = f"required; {_NAME_LIMITS}; unique in the league"
_ADDRESS: Final = "Left out: a free port of this machine, chosen when the league is first started."


def _one_of(words: tuple[str, ...]) -> str:
    return " or ".join([", ".join(f"`{word}`" for word in words[:-1]), f"`{words[-1]}`"])


LEAGUE_FIELDS: Final = (
    FileField(
        "league", "text", "local", _NAME_LIMITS, "Name of the league, in every certificate.",
        "league: harbour",
    ),
    FileField(
        "version", "whole number", "0", "",
        "Version of the file. `hanse league apply` counts it up; do not change it by hand.", "version: 3",
    ),
    FileField(
        "joined", "mapping of names to versions", "{}", "",
        "Members that were not there at first, with the version in which each joined. `hanse league "
        "apply` keeps it.",
        "joined: {south: 2}",
    ),
    FileField(
        "drained", "list of names", "[]", "clusters with `retired: true`",
        "Retired clusters that were drained when they left, so that nothing can have begun there unknown to "
        "the league. `hanse league retire` without `--force` keeps it; do not change it by hand.",
        "drained: [south]",
    ),
    FileField(
        "brokers", "list of mappings", "", f"required; 1 to {BROKER_NUMBER_MAX:,}",
        "The brokers. A broker's number is its place in the list: add new ones at the end.",
        "brokers: [{name: broker-1}, {name: broker-2}]",
    ),
    FileField(
        "clusters", "list of mappings", "", f"required; 1 to {CLUSTERS_MAX:,}",
        "The clusters, each with its warden. Add new ones at the end.",
        "clusters: [{name: north, nodes: [{cpus: 8, memory: 32GiB}]}]",
    ),
    FileField(
        "timings", "mapping of names to times", "", "",
        "Times of the protocol. All members of a league have the same.", "timings: {beat: 1s}",
    ),
    FileField(
        "policy", "mapping", "", "", "The policies of the brokers and the wardens, by name.",
        "policy: {order: fifo, placer: spread}",
    ),
)  # fmt: skip
"""Fields at the top of the file."""

BROKER_FIELDS: Final = (
    FileField("name", "text", "", _MEMBER_NAME, "Name of the broker.", "name: broker-1"),
    FileField(
        "address", "`host:port`", "", "", f"Where other members reach it. {_ADDRESS}",
        'address: "10.0.0.1:7401"',
    ),
    FileField(
        "door", "`host:port`", "", "", f"Where people and programs reach it by HTTPS. {_ADDRESS}",
        'door: "10.0.0.1:7402"',
    ),
    FileField(
        "retired", "true or false", "false", "",
        "The broker has left for good. Its place in the list is kept. `hanse league retire` sets it.",
        "retired: true",
    ),
)  # fmt: skip
"""Fields of each entry of ``brokers``."""

CLUSTER_FIELDS: Final = (
    FileField("name", "text", "", _MEMBER_NAME, "Name of the cluster and of its warden.", "name: north"),
    FileField(
        "address", "`host:port`", "", "", f"Where brokers and runners reach its warden. {_ADDRESS}",
        'address: "10.0.0.1:7411"',
    ),
    FileField(
        "door", "`host:port`", "", "",
        f"Where people and programs ask its warden for logs, nodes and drains. {_ADDRESS}",
        'door: "10.0.0.1:7412"',
    ),
    FileField(
        "backend", "text or mapping", BackendEntry().kind, "",
        "What runs the tasks: the name of a backend, or a mapping with its settings.",
        "backend: {kind: process, user: per-job, sandbox: auto}",
    ),
    FileField(
        "reserve", "whole number", "0", "at most the number of nodes",
        "Number of nodes, counted from the last one backwards, that only `latency` jobs may use.",
        "reserve: 1",
    ),
    FileField(
        "runners", "list of mappings", "[]", f"at most {RUNNERS_MAX:,}",
        "Runners on other machines than the warden's. The warden has a runner of its own for all other "
        "nodes.",
        "runners: [{name: north-2, address: \"10.0.0.5:7413\", door: \"10.0.0.5:7414\"}]",
    ),
    FileField(
        "nodes", "list of mappings", "", f"required except for `slurm`; 1 to {NODES_MAX:,}",
        "The nodes of the cluster. A Slurm cluster may leave them out: they are then the nodes of Slurm.",
        "nodes: [{count: 2, cpus: 8, memory: 32GiB}]",
    ),
    FileField(
        "retired", "true or false", "false", "",
        "The cluster has left for good. Its place in the list is kept. `hanse league retire` sets it.",
        "retired: true",
    ),
)  # fmt: skip
"""Fields of each entry of ``clusters``."""

RUNNER_FIELDS: Final = (
    FileField("name", "text", "", _MEMBER_NAME, "Name of the runner.", "name: north-2"),
    FileField(
        "address", "`host:port`", "", "", f"Where its warden reaches it. {_ADDRESS}",
        'address: "10.0.0.5:7413"',
    ),
    FileField(
        "door", "`host:port`", "", "", f"Where it serves the output of its tasks. {_ADDRESS}",
        'door: "10.0.0.5:7414"',
    ),
)  # fmt: skip
"""Fields of each entry of ``runners``."""

NODE_FIELDS: Final = (
    FileField(
        "count", "whole number", "1", f"1 to {NODES_MAX:,}", "Number of equal nodes.", "count: 2",
    ),
    FileField("cpus", "CPUs", "1", "", "CPUs of each node.", "cpus: 8"),
    FileField("memory", "bytes", "1GiB", "", "Memory of each node.", "memory: 32GiB"),
    FileField(
        "gpus", "whole number", "0", "",
        "GPUs of each node. Without `devices` the `process` backend takes those that it finds on the "
        "machine; where it finds none, GPUs are only counted.",
        "gpus: 4",
    ),
    FileField(
        "resources", "mapping of names to whole numbers", "{}", f"at most {CUSTOM_KINDS_MAX} names",
        "Other resources of each node, which jobs ask for by these names.", "resources: {fpga: 1}",
    ),
    FileField(
        "devices", "list of mappings", "[]", f"at most {DEVICES_PER_NODE_MAX}; not with `count`",
        "The devices of the node, each assigned to one task at a time by the `process` backend "
        "([Devices](../operator/devices.md)). `gpus` and `resources` may be left out for the kinds that are "
        "listed; numbers given must be equal.",
        "devices: [{kind: gpu, path: /dev/nvidia0}, {kind: fpga, path: /dev/fpga0}]",
    ),
    FileField(
        "attributes", "mapping of names to texts, whole numbers or true and false", "{}", "",
        "Attributes of each node, which the `where` of a job looks at. On the `process` backend `cpu_class`, "
        "`cpu_model` and `gpu_model` are detected unless they stand here.",
        "attributes: {zone: a, arch: arm64, disk_gb: 500}",
    ),
    FileField(
        "address", "host name or address", "", "without a port",
        "Where the tasks of a gang reach those on these nodes. Left out: the host of the runner's `address`, "
        "or of the warden's.",
        "address: 10.0.0.5",
    ),
    FileField(
        "runner", "text", "", "a runner of the cluster",
        "The runner that starts tasks on these nodes. Left out: the runner inside the warden.", "runner: "
        "north-2",
    ),
)  # fmt: skip
"""Fields of each entry of ``nodes``."""

DEVICE_FIELDS: Final = (
    FileField(
        "kind", "text", "", "required; `gpu`, or small letters, digits and `_`",
        "Kind of the device: `gpu`, or the name of the resource by which jobs ask for it.", "kind: fpga",
    ),
    FileField(
        "index", "whole number", "", f"at most {GPUS_MAX:,}; unique among the node's devices of this kind",
        "Number of the device. Of a GPU: the number that its driver uses. Left out: its place among "
        "those of its kind, from 0 on.",
        "index: 1",
    ),
    FileField(
        "path", "text", "", "an absolute path; in one node of a machine only",
        "Its device file. Left out: it has none (a licence, say), and nothing keeps other tasks from it.",
        "path: /dev/fpga0",
    ),
    FileField("model", "text", "", "", "Name of the model, for people.", "model: A100"),
    FileField("memory", "bytes", "0", "", "Memory of the device, for people.", "memory: 40GiB"),
    FileField(
        "uuid", "text", "", "", "Identity that its driver knows; NVIDIA's programs are then told this one.",
        "uuid: GPU-7c1f9a52",
    ),
    FileField(
        "vendor", "`nvidia` or `amd`", "", "",
        "Whose variables tell a task of a GPU. Left out: `amd` for files below `/dev/dri`, else `nvidia`.",
        "vendor: amd",
    ),
)  # fmt: skip
"""Fields of each entry of ``devices``."""

BACKEND_FIELDS: Final = (
    FileField(
        "kind", _one_of(BACKENDS.shipped), BackendEntry().kind, "",
        "What runs the tasks. `process`: processes on the runner's machine. `slurm`: jobs of a Slurm "
        "cluster. "
        "`null`: nothing runs, and every task succeeds; for measurements.",
        "kind: process",
    ),
    FileField(
        "sandbox", _one_of(SANDBOXES), "auto", "",
        "What is around each task. `namespace`: no other processes and no files of the league. `bwrap`: "
        "also no "
        "network and no files but those of the system. `auto`: `namespace` if the daemon is not root and it "
        "works, else `none`.",
        "sandbox: bwrap",
    ),
    FileField(
        "user", "text", "", "an account, or `per-job`",
        "The account that runs the tasks when the daemon is root. Left out: `process` gives each job a "
        "user id "
        "of its own (`per-job`), `slurm` takes `nobody`.",
        "user: nobody",
    ),
    FileField(
        "users", "mapping", "", "", "The range of user ids for `per-job`.",
        "users: {first: 2000000000, count: 100000000}",
    ),
    FileField(
        "output", "bytes", f"{BackendEntry().output >> 20}MiB", "", "How much of each output stream of a "
        "task is kept.",
        "output: 16MiB",
    ),
    FileField(
        "disk", "bytes", "0", "",
        "How much the files of one task may take in its working directory; 0: a quarter of the disk.",
        "disk: 20GiB",
    ),
    FileField(
        "files", "whole number", "0", "",
        "How many files one task may have in its working directory; 0: a quarter of the inodes of the disk.",
        "files: 200000",
    ),
    FileField(
        "directory", "text", "", "an absolute path",
        "Where runners keep their tasks. Left out: in the directory of the member, on the disk of its "
        "journal.",
        "directory: /scratch/hanse",
    ),
    FileField(
        "limits", _one_of(LIMITS), "auto", "",
        "How the limits of a task are enforced: control groups of version 2 or 1, or resource limits of "
        "processes.",
        "limits: v2",
    ),
    FileField(
        "memory_default", "bytes", "0", "",
        "Memory that a task may use which asked for none; 0: the share of its node's memory that its CPUs "
        "are of "
        "the node's CPUs.",
        "memory_default: 2GiB",
    ),
)  # fmt: skip
"""Fields of ``backend``."""

USERS_FIELDS: Final = (
    FileField(
        "first", "whole number", str(UserRange().first), f"1000 to {UID_MAX}", "The first user id.",
        "first: 2000000000",
    ),
    FileField(
        "count", "whole number", str(UserRange().count), f"the last id is at most {UID_MAX}", "Number of "
        "user ids.",
        "count: 100000000",
    ),
)  # fmt: skip
"""Fields of ``users``."""

POLICY_FIELDS: Final = (
    FileField(
        "order", _one_of(POLICIES["order"].shipped), PolicyConfig().order, "",
        "The order in which waiting jobs are served. The same in the whole league.", "order: fifo",
    ),
    FileField(
        "placer", _one_of(POLICIES["placer"].shipped), PolicyConfig().placer, "",
        "How a broker chooses a node.",
        "placer: spread",
    ),
    FileField(
        "rank", _one_of(POLICIES["rank"].shipped), PolicyConfig().rank, "",
        "In which order a broker tries clusters.",
        "rank: rotate",
    ),
    FileField(
        "sizer", _one_of(POLICIES["sizer"].shipped), PolicyConfig().sizer, "",
        "How a broker sizes elastic work.",
        "sizer: priced",
    ),
    FileField(
        "node_ranker", _one_of(POLICIES["node_ranker"].shipped), PolicyConfig().node_ranker, "",
        "How a warden chooses a node: for a task whose proposed node is taken, and for waiting work that it "
        "serves from free room.",
        "node_ranker: best-fit",
    ),
)  # fmt: skip
"""Fields of ``policy``."""
