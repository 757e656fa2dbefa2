"""Elastic tasks at the edge: choice of a pending task, and of its CPUs and GPUs.

Pure functions over NumPy columns, from the simplest rule to the trained network, each the fallback of the
next. All of them read an :class:`~hanse.learning.edge.env.policy_interface.EdgeView` and answer with a
:class:`~hanse.learning.edge.env.policy_interface.Choice`.
"""
