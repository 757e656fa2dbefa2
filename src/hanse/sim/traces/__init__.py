"""Workload traces: readers and writers of public and native formats, a generator, description and sampling.

Entry points: ``open_trace`` (chunks and a report), ``read`` (chunks), ``load`` (one chunk in order of
arrival), ``read_nodes`` (lists of nodes). docs/research/traces.md explains each format.
"""

from hanse.sim.traces.chunk import JobChunk, concatenate, sort_by_arrival, take
from hanse.sim.traces.formats import (
    FORMATS,
    load,
    load_from_reader,
    load_with_report,
    open_trace,
    read,
    usable_formats,
)
from hanse.sim.traces.node_lists import NodeTable, read_nodes
from hanse.sim.traces.read_options import CancelledRule, EstimateRule, ProcessorRule, ReadOptions, TimeUnit
from hanse.sim.traces.read_report import BadRow, ReadReport, TraceError
from hanse.sim.traces.reader import OpenTrace, TraceReader

__all__ = [
    "FORMATS",
    "BadRow",
    "CancelledRule",
    "EstimateRule",
    "JobChunk",
    "NodeTable",
    "OpenTrace",
    "ProcessorRule",
    "ReadOptions",
    "ReadReport",
    "TimeUnit",
    "TraceError",
    "TraceReader",
    "concatenate",
    "load",
    "load_from_reader",
    "load_with_report",
    "open_trace",
    "read",
    "read_nodes",
    "sort_by_arrival",
    "take",
    "usable_formats",
]
