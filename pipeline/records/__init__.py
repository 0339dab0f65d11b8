"""Records of others, in and out: `import`, `export`, and trackers of experiments.

importing     the verb `import`: leads through `formats`, `plan` and `runs`
columns       what a record may hold, under which names, and every check of a value
lm_eval, ...  a format each: what reads it, and what writes it
exporting     the verb `export`: a folder that appears whole or not at all; `reading`, `about`
trackers      W&B, MLflow, Trackio behind one interface; `following` is the process beside a command
"""
