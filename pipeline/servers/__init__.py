"""Model servers over HTTP: what is asked of them, and what every kind of failure means."""
