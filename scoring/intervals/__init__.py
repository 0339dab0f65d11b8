"""Other intervals than the normal one: exact and classical, and both kinds of uncertainty."""
