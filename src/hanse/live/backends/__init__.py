"""Backends that run tasks for wardens and runners: one small interface and its implementations."""
