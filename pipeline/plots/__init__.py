"""Figures of results: one style for print and for the report, drawn by matplotlib from arrays."""
