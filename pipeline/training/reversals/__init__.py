"""prr: how often the order of models reverses between two sets of their runs (MaP)."""
