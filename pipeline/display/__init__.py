"""How results look: tables, LaTeX, colors of categories, the style of figures."""
