"""The central policy earliest-finish: it estimates when a task would finish where, and waits when that
pays."""
