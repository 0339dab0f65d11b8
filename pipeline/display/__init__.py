"""How results look: tables, LaTeX, the style of figures."""
