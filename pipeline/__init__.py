"""Sample, grade and score reasoning models: N trials of every question, Bayes@N at the end.

The command line is ``python -m pipeline VERB``; see `pipeline.cli.main`. Each stage is a package
whose `stage.py` has one public function that takes a `pipeline.store.runfolder.Run`.
"""
