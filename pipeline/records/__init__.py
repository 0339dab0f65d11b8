"""Import and export of other programs' records, and experiment trackers.

importing   the verb `import`: a record becomes an attempt (`columns`), which waits for its run
            (`runs`), whose tables are written once all are read (`folders`)
flat, ...   readers of formats: rows (`flat`), logs by a table of fields (`shapes`, `logs`)
exporting   the verb `export`, and what writers know of runs; `flat`, `hub`, `exported_logs`
trackers    W&B, MLflow, Trackio behind one interface, and a process that runs beside a command
"""
