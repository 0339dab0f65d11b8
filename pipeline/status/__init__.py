"""status: where runs stand, once or again and again, read only and beside any number of workers."""
