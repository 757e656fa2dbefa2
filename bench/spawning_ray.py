"""``/bin/true`` as tasks of Ray on this machine, for ``bench/spawning.py``: ``python spawning_ray.py COUNT``.

Run by an interpreter that has Ray. Prints one line of JSON, times in seconds. Two slots, as peers are
commonly measured here, and interpreters that are warm before the clock starts.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import ray

WARM = 100
SLOTS = 2


def descendants_cpu() -> float:
    """Seconds of CPU time of this process and all below it, with what they have waited for."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        fields = text.rpartition(")")[2].split()
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family and pid not in family}
        grown = bool(more)
        family |= more
    return sum(used.get(pid, 0.0) for pid in family)


def main() -> None:
    """Measure."""
    count = int(sys.argv[1])
    begin = time.perf_counter()
    ray.init(num_cpus=SLOTS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)

    @ray.remote
    def true() -> int:
        return subprocess.call(["/bin/true"])

    ray.get(true.remote())
    first = time.perf_counter() - begin
    ray.get([true.remote() for _ in range(WARM)])
    cpu, begin = descendants_cpu(), time.perf_counter()
    codes = ray.get([true.remote() for _ in range(count)])
    seconds, cpu = time.perf_counter() - begin, descendants_cpu() - cpu
    assert codes == [0] * count, "not all succeeded"
    print(
        json.dumps(
            {"seconds": seconds, "cpu_seconds": cpu, "first_result": first, "version": ray.__version__}
        )
    )
    ray.shutdown()


if __name__ == "__main__":
    main()
