"""Observability of a member: metrics for Prometheus, and traces of jobs for OpenTelemetry.

Everything here only observes: it is called after an event was performed, and queries the state of machines.
No machine, journal or network connection waits for it.
"""
