"""Import and export of other programs' records, and experiment trackers.

importing     the verb `import`: a record becomes an attempt (`columns`), which waits for its run
              (`runs`), whose tables are written once all are read (`folders`)
lm_eval, ...  a format each: its reader and its writer; `formats` is their table
exporting     the verb `export`, which writes a folder atomically; `reading`, `about`
trackers      W&B, MLflow, Trackio behind one interface; `following` runs beside a command
"""
