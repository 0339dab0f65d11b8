"""Runs on a Slurm cluster: submission, and the state of its jobs."""
