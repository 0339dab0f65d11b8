"""What all other packages use: console, errors, signals, leases, atomic and untrusted files."""
