"""Studies of evaluation itself; the rest of the pipeline does not know it."""
