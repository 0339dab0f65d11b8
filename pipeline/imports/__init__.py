"""Records that others made, as ordinary run folders: see docs/import.md."""
