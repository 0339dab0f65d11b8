"""generate: any number of workers sample the pending attempts of a run, each attempt once."""
