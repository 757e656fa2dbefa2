"""Machine instructions per simulated event: ``python bench/instructions.py [--seeds FIRST LAST]``.

Counted by valgrind's callgrind, so they are the same in every run of the same code and interpreter, however
busy the machine is: what a change to the machines or the simulator saves is judged by them (ADR 0028). What
the interpreter and the imports need is taken out by a run of one seed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FIXED = (1, 1)
"""The seeds of the run that is taken out."""
TIMEOUT_S = 1_800
CODE = """
import sys
from hanse.sim.chaos import run_seed, combined_digest
from hanse.sim.shipped_league import shipped_factories
results = [run_seed(seed, shipped_factories()) for seed in range(int(sys.argv[1]), int(sys.argv[2]) + 1)]
print(sum(result.events for result in results), combined_digest(results))
"""


def count(first: int, last: int) -> tuple[int, int, str]:
    """Instructions and events of these seeds, and their digest."""
    calm = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command = [*tool, sys.executable, "-c", CODE, str(first), str(last)]
    ran = subprocess.run(  # noqa: S603  our own command line
        command, env=calm, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    found = re.search(r"Collected : (\d+)", ran.stderr)
    assert found is not None, ran.stderr[-500:]
    events, digest = ran.stdout.split()
    return int(found[1]), int(events), digest


def main() -> None:
    """Count, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(110, 118), metavar=("FIRST", "LAST"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not there: apt-get install valgrind")
    (spent, fixed_events, _), (all_spent, events, digest) = count(*FIXED), count(*options.seeds)
    figure = {
        "instructions_per_event": round((all_spent - spent) / (events - fixed_events)),
        "events": events,
        "digest": digest,
        "seeds": list(options.seeds),
        "python": sys.version.split()[0],
    }
    print(json.dumps(figure))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
