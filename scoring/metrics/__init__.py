"""Scores of one matrix: Bayes@N, avg@N, and the Pass@k family."""
