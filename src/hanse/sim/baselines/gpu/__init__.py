"""Schedulers of the literature for GPU clusters and multi-resource nodes.

There are two families. *Queueing*: jobs that arrive, wait, run (perhaps in several stretches) and end, under
FIFO, SJF, best fit, DRF, Tetris, SRTF, SRSF and Tiresias' least attained service; ``muri`` reproduces the
published figures of one simulator with its quirks. *Placement*: pods that arrive and never leave, to measure
how much of the cluster can be allocated before nothing fits any more (Random, DotProd, GpuClustering,
GpuPacking, BestFit, FGD).
"""
