"""The categorize stage: signals of attempts, and the categories of rubrics."""
