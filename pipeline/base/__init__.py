"""What everything stands on: the console, errors, signals, files that are replaced whole."""
