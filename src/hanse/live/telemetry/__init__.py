"""What monitoring sees of a member: metrics for Prometheus, and traces of jobs for OpenTelemetry.

Everything here looks on: it is told what was taken and performed, and asks machines what they show. No
machine, journal or wire waits for it.
"""
