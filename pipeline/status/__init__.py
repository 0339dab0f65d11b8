"""How far runs are, once or again and again, read only and beside any number of workers."""
