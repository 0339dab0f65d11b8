"""Workers of a run folder: claims, heartbeats, devices, supervision, and what they spent."""
