"""A verifier model's labels: calibration, quality, agreement with the grader."""
