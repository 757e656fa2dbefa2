"""Process backend: tasks as processes of this machine, their launcher, limits and output."""
