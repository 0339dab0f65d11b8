"""Several runs of a data set side by side."""
