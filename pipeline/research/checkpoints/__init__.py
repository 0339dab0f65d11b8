"""Checkpoints of a training: finding them, and the mean of their weights."""
