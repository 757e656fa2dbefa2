"""Schedulers of the literature on one network model: constant one-way delay, one task per node, no processing
time."""
