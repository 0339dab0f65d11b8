"""Counts, checks and the formulas on counts; what public functions stand on."""
