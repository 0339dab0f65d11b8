"""Two models or many: comparison, ranks, reversals, planning, trajectories."""
