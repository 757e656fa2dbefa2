"""Golden interaction scripts: a small language that plays a story and prints everything that happens.

A script is a text of blocks. A block is prose (lines that begin with ``#``), commands, a line ``----``, and
the output of the commands; an empty line ends it. ``run_script`` returns the text with the present output, so
a script is its own expectation. Nothing is random here: clocks are true, no message is lost unless a command
drops it, and messages wait until they are delivered (``network=manual``) or take one millisecond
(``network=immediate``). Beats, acknowledgements and gossip always take one millisecond and are not printed.

Commands (names of processes as in ``cluster`` and ``league``; a runner is called ``alpha.r1``)::

    cluster alpha 3x4cpu 1x8cpu+2gpu runners=2 reserve=1 zone=a,a,b,b
    league b1 b2 network=manual order=fifo placer=best_fit grant_lease=2s
    submit b1 tasks=3 cpu=2 memory=4GiB run=2s gang=yes name=web      (and the other fields of a job)
    submit b1 groups=fetch:2,build:1<fetch
    deliver | deliver all | deliver b1->alpha | deliver alpha->b1 answer
    drop b1->alpha claim            flight                  advance 5s          run until idle
    finish 1-0.0    fail 1-0.0 code=3        crash alpha    restart alpha       pause b1    resume b1
    burn alpha.r1   cut b1|alpha    cut b1->alpha   heal    drain alpha 0 1     undrain alpha
    cancel 1-0      state b1        state alpha     network manual
"""

from typing import Final

from hanse.sim.league import LeagueFactories
from hanse.sim.scripts.script_player import ScriptPlayer

_SEPARATOR: Final = "----"


def run_script(text: str, factories: LeagueFactories) -> str:
    """Run a script and return its text with the present output of its commands."""
    player = ScriptPlayer(factories)
    blocks: list[str] = []
    for block in text.strip("\n").split("\n\n"):
        commands_text, rule, _ = block.partition(f"\n{_SEPARATOR}")
        if not rule:
            blocks.append(commands_text)
            continue
        commands = [line for line in commands_text.split("\n") if line and not line.startswith("#")]
        lines = [line for command in commands for line in player.perform(command)]
        blocks.append("\n".join([commands_text, _SEPARATOR, *(lines or ["ok"])]))
    return "\n\n".join(blocks) + "\n"
