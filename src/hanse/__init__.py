"""Hanse: a league of autonomous clusters that act as one machine.

The rooms, from the top: ``app`` (composition root), ``learn`` (training), ``live`` and ``sim`` (the two
shells), ``core`` (the sans-IO machines), ``policy`` (pure decisions over columns), ``model`` (records).
Imports go downwards only; see ``ARCHITECTURE.md``.
"""

if not __debug__:  # our bugs are assertions: without them a broken invariant would pass in silence
    raise RuntimeError("hanse refuses to run under 'python -O': its assertions are part of its safety")

__version__ = "0.1.0"
