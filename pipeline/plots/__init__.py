"""Figures of results, drawn by matplotlib from arrays, in one style for print and report."""
