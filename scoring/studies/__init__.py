"""Studies with known truth, and how many trials a ranking needs."""
