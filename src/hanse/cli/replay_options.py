"""Options of ``hanse replay`` and ``hanse sweep``, and the settings and errors that come of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from hanse.cli.common_options import TextParam
from hanse.cli.trace_reading import FileRefusedError
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.registry import NODE_RANKERS, QUEUE_ORDERS, Registry
from hanse.sim.replay.run_records import ENGINES, ReplayError, ReplaySettings
from hanse.sim.traces import TraceError


class PolicyName(TextParam):
    """Name of a policy: of our own or of an installed package, which is found when it is needed."""

    def __init__(self, name: str, registry: Registry[Any]) -> None:
        self.name = name
        self._registry = registry

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return all names, as for a ``click.Choice``."""
        del param, ctx
        return f"[{'|'.join(self._registry.names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or refuse it with the known ones."""
        problem = self._registry.find_problem(str(value))
        return self.fail(problem, param, ctx) if problem else str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names."""
        del ctx, param
        return [CompletionItem(name) for name in self._registry.names() if name.startswith(incomplete)]


POLICY: Final = "central"
"""Policy if none is named."""
REPLAY_OPTIONS: Final = (
    click.option("--clusters", type=click.IntRange(1), default=10, show_default=True, help="Clusters."),
    click.option("--order", type=PolicyName("order", QUEUE_ORDERS), default="fewest-remaining",
                 show_default=True, help="Queue order, for policies that have a choice."),
    click.option("--delay-ms", type=click.FloatRange(0), default=0.5, show_default=True,
                 help="One-way delay of a message."),
    click.option("--short-cutoff", type=click.FloatRange(0), default=90.5811, show_default=True,
                 help="Seconds: jobs whose mean task is shorter than this are short."),
    click.option("--short-percent", type=click.FloatRange(0, 50), default=2.0, show_default=True,
                 help="Per cent of nodes kept for short jobs (hawk, eagle, pigeon)."),
    click.option("--reserve-percent", type=click.FloatRange(0, 50), default=0.0, show_default=True,
                 help="Per cent of each cluster's nodes kept for short jobs (hanse)."),
    click.option("--pigeon-group", type=click.IntRange(1), default=100, show_default=True,
                 help="Nodes per group (pigeon)."),
    click.option("--heartbeat", type=click.FloatRange(0, min_open=True), default=5.0, show_default=True,
                 help="Seconds between heartbeats (megha, hanse)."),
    click.option("--gossip", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
                 help="Seconds between gossip (shared)."),
    click.option("--whole-seconds", is_flag=True, help="Cut durations of .tr traces to whole seconds."),
    click.option("--node-gpus", type=click.IntRange(0), default=8, show_default=True,
                 help="GPUs of a node (GPU jobs)."),
    click.option("--node-cpus", type=click.IntRange(0), default=0,
                 help="CPUs of a node (GPU jobs); 0: not counted."),
    click.option("--node-memory", type=click.IntRange(0), default=0,
                 help="GiB of a node (GPU jobs); 0: not counted."),
    click.option("--node-list", type=click.Path(dir_okay=False, path_type=Path),
                 help="Machines, for the placement of pods (fgd and its peers)."),
    click.option("--node-ranker", type=PolicyName("ranker", NODE_RANKERS), default=FirstNodeRanker.name,
                 show_default=True, help="Choice of nodes at the wardens (hanse)."),
    click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True,
                 help="Engine of hanse: its compiled twin or the Python machines; equal results."),
)  # fmt: skip


class UnrunnableError(CommandError):
    """Replay that cannot run; nothing was done."""

    exit_code = int(ExitCode.USAGE)  # click's exit code where a command runs without ``hanse``

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


@contextmanager
def replay_errors() -> Iterator[None]:
    """Turn refusals into command errors: nothing was done, so the command must change."""
    try:
        yield
    except ReplayError as reason:
        raise UnrunnableError(str(reason)) from reason
    except TraceError as reason:
        raise FileRefusedError(str(reason)) from reason
    except OSError as reason:
        place = reason.filename or "the output"
        raise FileRefusedError(f"{place}: {reason.strerror or reason}") from reason


def require_folders(*paths: Path | None) -> None:
    """Refuse early a path that could not be written after hours of work."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise FileRefusedError(f"{path}: the folder {path.parent} does not exist")


def replay_options(command: Any) -> Any:
    """Add the options that both commands have."""
    for option in reversed(REPLAY_OPTIONS):
        command = option(command)
    return command


def replay_settings(options: dict[str, Any], brokers: int, seed: int) -> ReplaySettings:
    """Return the settings that the options say, with defaults for those of one command only."""
    return ReplaySettings(
        nodes=options["nodes"],
        clusters=options["clusters"],
        brokers=brokers,
        order=options["order"],
        delay_us=round(options["delay_ms"] * 1000),
        seed=seed,
        short_cutoff_us=round(options["short_cutoff"] * 1_000_000),
        short_percent=options["short_percent"],
        reserve_percent=options["reserve_percent"],
        pigeon_group=options["pigeon_group"],
        heartbeat_us=round(options["heartbeat"] * 1_000_000),
        gossip_us=round(options["gossip"] * 1_000_000),
        node_gpus=options["node_gpus"],
        node_cpus=options["node_cpus"],
        node_memory_gib=options["node_memory"],
        node_list=str(options["node_list"] or ""),
        node_ranker=options["node_ranker"],
        engine=options["engine"],
        faults=str(options.get("faults") or ""),
    )


def split_names(names: str) -> list[str]:
    """Return the names between commas, each once."""
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
