"""The report: one HTML file about many runs, and side files with the texts of their attempts."""
