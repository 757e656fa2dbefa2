"""Messaging between machines: links that deliver once and in order, and messages of bounded size."""
