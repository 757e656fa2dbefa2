"""Tasks as jobs of a Slurm cluster that somebody else runs."""
