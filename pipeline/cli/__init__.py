"""The command line: verbs, their arguments and help."""
