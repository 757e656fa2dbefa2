"""Workload traces: readers and writers of public and native formats, a generator, description and sampling.

Entry points: ``open_trace`` (chunks and a report), ``read`` (chunks), ``load`` (one chunk in order of
arrival), ``read_nodes`` (lists of nodes). docs/traces.md explains each format.
"""

from hanse.sim.traces.chunk import JobChunk, by_arrival, concatenate, take
from hanse.sim.traces.formats import FORMATS, load, load_open, load_with_report, open_trace, read
from hanse.sim.traces.node_lists import NodeTable, read_nodes
from hanse.sim.traces.read_options import Cancelled, Estimates, Processors, ReadRules, TimeUnit
from hanse.sim.traces.read_report import BadRow, ReadReport, TraceError
from hanse.sim.traces.reader import OpenTrace, TraceReader

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
