"""Every benchmark in one run: ``python bench/all.py --json FILE`` writes all figures, by benchmark."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edge
import journal
import kernels
import observe
import processes
import reads
import replay
import rounds
import simulator
import wire
import worlds

BENCHES: dict[str, Callable[[], dict[str, Any]]] = {
    "kernels": kernels.run,
    "rounds": rounds.run,
    "simulator": simulator.run,
    "replay": replay.run,
    "worlds": worlds.run,
    "edge": edge.run,
    "journal": journal.run,
    "reads": reads.run,
    "wire": wire.run,
    "processes": processes.run,
    "observe": observe.run,
}


def main() -> None:
    """Measure everything; a line to stderr for each benchmark, all figures to ``--json`` or to stdout."""
    parser = argparse.ArgumentParser(description="All benchmarks of this machine.")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--only", choices=BENCHES, action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    result = {}
    for name in options.only or BENCHES:
        begin = time.process_time()
        result[name] = BENCHES[name]()
        print(f"{name}: measured in {time.process_time() - begin:.0f} CPU-seconds", file=sys.stderr)
    text = json.dumps(result, indent=2)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
