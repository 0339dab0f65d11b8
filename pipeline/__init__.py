"""Sample, grade and score reasoning models: N trials of every question, Bayes@N at the end.

The command line is ``python -m pipeline VERB``; see `pipeline.cli`. Each stage is one module with
one public function that takes a `pipeline.runfolder.Run`.
"""
