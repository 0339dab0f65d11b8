"""Records of others, in and out: `import`, `export`, and trackers of experiments.

importing   the verb `import`: leads through all that follows
formats     how each kind of records is recognised, and read: by `parquet`, `npz`, `lm_eval`, ...
row         what a record can say, under which names, and every check of a value
exporting   the verb `export`: a folder that appears whole or not at all
reading     the attempts of a run, some rows at a time; `about` is what logs say of them
trackers    W&B, MLflow, Trackio behind one interface; `following` is the process beside a command
"""
