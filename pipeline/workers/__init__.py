"""Who works in a run folder, with which devices: heartbeats, what workers left and spent."""
