"""``/bin/true`` as tasks of HyperQueue on this machine, for ``bench/spawning.py``.

``python spawning_hyperqueue.py COUNT``, run by an interpreter that has HyperQueue. Prints one line of JSON,
times in seconds. Two cores, no output files. HyperQueue's client asks once a second whether a job is over, so
up to a second of its time is waiting: part of what its users see.
"""

import importlib.metadata
import json
import os
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

SLOTS = 2


def own_cpu() -> float:
    """Seconds of CPU time of this process (which holds its server) and of all it has waited for."""
    return sum(os.times()[:4])


def job_of(count: int) -> Job:
    """A job of so many tasks."""
    job = Job()
    for _ in range(count):
        job.program(["/bin/true"], stdout=None, stderr=None)
    return job


def main() -> None:
    """Measure."""
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        begin = time.perf_counter()
        with LocalCluster(worker_config=WorkerConfig(cores=SLOTS)) as cluster:
            client = cluster.client()
            client.wait_for_jobs([client.submit(job_of(1))])
            first = time.perf_counter() - begin
            cpu, begin = own_cpu(), time.perf_counter()
            client.wait_for_jobs([client.submit(job_of(count))])
            seconds, cpu = time.perf_counter() - begin, own_cpu() - cpu
            version = importlib.metadata.version("hyperqueue")
            told = {"seconds": seconds, "cpu_seconds": cpu, "first_result": first, "version": version}
            print(json.dumps(told), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
