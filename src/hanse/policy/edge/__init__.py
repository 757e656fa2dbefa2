"""Elastic tasks at the edge: which pending task to take, and how many CPUs and GPUs to give it.

Pure functions over NumPy columns, from the simplest rule to the trained network, each the fall-back of the
next. All of them read a :class:`~hanse.policy.edge.view.View` and answer with a
:class:`~hanse.policy.edge.view.Choice`; a live warden uses :func:`~hanse.policy.edge.sizing.size_elastic`.
"""
