"""Compiled league: the machines of a run without faults in C, one to two hundred times as fast.

``LeanShell`` (``sim.replay.hanse_policy``) and the machines of ``core`` are the reference: every outcome
here equals theirs in every field but the time taken. The C files mirror ``core``'s modules without the parts
that a run without faults never uses. ``find_objection`` says before a run why it must be left to the
machines; a run that turns out to need more than the compiled league has is a bug and raises.
"""

from hanse.sim.replay.compiled.run import find_objection, find_settings_objection, load_problem, run_compiled

__all__ = ["find_objection", "find_settings_objection", "load_problem", "run_compiled"]
