"""``hanse world``: worlds of unequal clusters for replays, generated and described.

Exit codes as everywhere (``hanse.client.exit_codes``): 74 when a world or a trace cannot be read or written,
2 for bad usage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from hanse.cli.trace_reading import FileRefusedError, open_journals, print_report, trace_errors, with_progress
from hanse.cli.world_tables import print_work, print_world
from hanse.sim.traces.chunk import JobChunk, concatenate, sort_by_arrival
from hanse.sim.traces.formats import open_trace
from hanse.sim.traces.reader import OpenTrace
from hanse.sim.worlds.drawing.stretches import STRETCHES
from hanse.sim.worlds.presets import PRESETS, make_preset
from hanse.sim.worlds.round_trips import find_latencies
from hanse.sim.worlds.work import LOAD_MAX, make_work
from hanse.sim.worlds.work_description import describe_work, describe_world
from hanse.sim.worlds.world import WorldError
from hanse.sim.worlds.world_file import read_world, world_to_text, write_world

STDOUT = "-"


@contextmanager
def world_errors() -> Iterator[None]:
    """Turn errors of worlds and traces into command errors."""
    with trace_errors():
        try:
            yield
        except WorldError as error:
            raise FileRefusedError(str(error)) from error


@click.group()
def world() -> None:
    """Generate and describe worlds: unequal clusters, data and neighbours, for replays."""


@world.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), default=next(iter(PRESETS)), show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--latencies",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Table of round trips between regions in ms.  [default: the one in the traces, else distances]",
)
@click.option("--out", default=STDOUT, show_default=True, help="File to write; - is standard output.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as one JSON object.")
def generate(preset: str, seed: int, latencies: Path | None, out: str, as_json: bool) -> None:
    """Generate a world file from a preset and a seed.

    The file has all figures, the round trips, too, so it gives the same world everywhere. Round trips come
    from network/gcp_latency_matrix.csv in $HANSE_TRACES or ../shared/traces if it is there, else from
    distances; the file says which.
    """
    if as_json and out == STDOUT:
        raise click.UsageError("--json and the world both go to standard output: name a file with --out")
    with world_errors():
        made = make_preset(preset, seed, latencies or find_latencies())
        if out == STDOUT:
            click.echo(world_to_text(made), nl=False)
            return
        write_world(Path(out), made)
        facts = describe_world(made)
        origin = facts["round_trips"]
        if as_json:
            _print_json({"file": out, **facts})
        else:
            click.echo(
                f"{made.node_count:,} nodes in {len(made.clusters)} clusters written to {out} "
                f"(round trips: {origin})",
                err=True,
            )


@world.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("traces", metavar="[TRACE]...", nargs=-1)
@click.option(
    "--load",
    type=click.FloatRange(0, LOAD_MAX, min_open=True),
    default=0.7,
    show_default=True,
    help="Work of all tasks over what the cores do in the horizon.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--stretch",
    type=click.Choice(STRETCHES),
    default="test",
    show_default=True,
    help="First 60 % of each trace, or the last 40 %.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def describe(
    *, file: Path, traces: tuple[str, ...], load: float, seed: int, stretch: str, as_json: bool
) -> None:
    """Describe the world in FILE; with traces, also the work that they bring into it.

    Jobs of the first trace are submitted in the first cluster, of the second in the second, and so on around.
    """
    with world_errors():
        found = read_world(file)
        facts: dict[str, Any] = describe_world(found)
        if traces:
            chunks = [(name, _load(name)) for name in traces]
            facts["work"] = describe_work(make_work(found, chunks, load, seed, stretch), found)
    if as_json:
        _print_json(facts)
        return
    print_world(facts)
    if traces:
        print_work(facts["work"])


def _load(name: str) -> JobChunk:
    """Return a whole trace, in order of arrival; bad rows are reported on standard error."""
    path = Path(name)
    reader: OpenTrace = open_journals([path]) if path.is_dir() else open_trace(name)
    chunk = sort_by_arrival(concatenate(list(with_progress(reader))))
    print_report(reader.report, strict=False)
    return chunk


def _print_json(facts: dict[str, Any]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(facts)).decode())


if __name__ == "__main__":
    world(prog_name="hanse world")
