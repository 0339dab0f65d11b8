"""Runs in trackers of experiments: W&B, MLflow, Trackio."""
