"""Runs on a Slurm cluster: one command that queues everything, and what became of its jobs."""
