"""The prepare stage: questions, prompts, models, and estimates of cost."""
