"""The paper's studies, from runs where it used runs, else simulated, and all of them as a page."""
