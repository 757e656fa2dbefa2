"""Traces: readers of public formats and of our own, writers, a generator, and what describes and thins them.

The doors: ``open_trace`` (chunks and a report), ``read`` (chunks), ``load`` (one chunk in order of arrival),
``read_nodes`` (lists of machines). What each format means is in docs/traces.md.
"""

from hanse.sim.trace.chunk import JobChunk, by_arrival, concatenate, take
from hanse.sim.trace.formats import FORMATS, load, load_open, load_with_report, open_trace, read
from hanse.sim.trace.nodes import NodeTable, read_nodes
from hanse.sim.trace.reader import OpenTrace, TraceReader
from hanse.sim.trace.report import BadRow, ReadReport, TraceError
from hanse.sim.trace.rules import Cancelled, Estimates, Processors, ReadRules, TimeUnit

__all__ = [
    "FORMATS",
    "BadRow",
    "Cancelled",
    "Estimates",
    "JobChunk",
    "NodeTable",
    "OpenTrace",
    "Processors",
    "ReadReport",
    "ReadRules",
    "TimeUnit",
    "TraceError",
    "TraceReader",
    "by_arrival",
    "concatenate",
    "load",
    "load_open",
    "load_with_report",
    "open_trace",
    "read",
    "read_nodes",
    "take",
]
