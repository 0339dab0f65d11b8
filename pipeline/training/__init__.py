"""Checkpoints of a training: merging, scores along a trajectory, reversals of rankings."""
