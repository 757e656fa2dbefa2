"""Tests of the detection of hardware."""
