"""Mathematics in LaTeX: read, put into one spelling, and compared; `compare` is the way in."""
