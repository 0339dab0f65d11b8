"""The run folder: its tables, parts and sessions, and the selection of runs."""
