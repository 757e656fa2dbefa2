"""Slurm backend: tasks as jobs of a Slurm cluster with administrators of its own."""
