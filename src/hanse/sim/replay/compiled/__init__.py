"""The plain league, compiled: the machines of a run without faults in C, one to two hundred times as fast.

``LeanShell`` (``sim.replay.hanse_policy``) and the machines of ``core`` are the reference: every outcome here
is equal to theirs in every field but the time taken. The C files mirror ``core``'s modules; what a plain
league never does is not in them. ``objection`` says before a run why it must be left to the machines; what
turns out to be beyond the plain league during a run is our bug and raises.
"""

from hanse.sim.replay.compiled.run import available, objection, objection_to, run_plain

__all__ = ["available", "objection", "objection_to", "run_plain"]
