"""Schedulers of the literature for GPU clusters and multi-resource nodes.

Two families live here. *Queueing*: jobs that arrive, wait, run (perhaps in several stretches) and end, under
FIFO, SJF, best fit, DRF, Tetris, SRTF, SRSF and Tiresias' least attained service; ``muri`` repeats the
published figures of one simulator with its quirks. *Placement*: pods that only arrive, and the question how
much of the cluster can be given away before nothing fits any more (Random, DotProd, GpuClustering,
GpuPacking, BestFit, FGD).
"""
