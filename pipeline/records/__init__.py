"""Import and export of other programs' records, and experiment trackers.

importing     the verb `import`, by way of `formats`, `plan` and `runs`
columns       the fields that records may have, their names, and all checks of values
lm_eval, ...  a format each: its reader and its writer
exporting     the verb `export`, which writes a folder atomically; `reading`, `about`
trackers      W&B, MLflow, Trackio behind one interface; `following` runs beside a command
"""
