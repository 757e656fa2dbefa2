"""Schedulers of the literature for rigid parallel jobs: a job holds a fixed number of processors until it
ends.

Batch machines and their logs (the Standard Workload Format) are of this kind. Here are
first-come-first-served and shortest-first with a blocking head, EASY backfilling and conservative
backfilling, all with a pluggable order of the waiting jobs. Every scheduler is a callable ``(RigidWorkload,
RigidSettings) -> RigidOutcome``.
"""
