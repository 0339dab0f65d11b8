"""Progress of runs, once or continuously; read-only, safe beside any number of workers."""
