"""Several engines on one node: a process each, with GPUs or cores of its own."""
