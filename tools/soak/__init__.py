"""A live soak: a real league under clients and faults drawn from a seed, and a checker of what happened.

``make soak MINUTES=20 SEED=1``. Not part of ``make test``, which has a run of half a minute.
"""
