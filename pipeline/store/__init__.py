"""The run folder: tables, shards, leases, workers, and finding runs."""
