"""Scores of one matrix: Bayes@N, avg@N with the interval that covers, and the Pass@k family."""
