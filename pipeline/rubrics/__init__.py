"""Two stages: `signals` measures attempts, `categorize` maps them into categories of rubrics."""
