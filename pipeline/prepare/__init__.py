"""The prepare stage: questions, prompts and what the run is."""
