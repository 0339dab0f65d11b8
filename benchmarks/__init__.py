"""The project measured side by side with the bare engine and with its peers, in one run."""
