"""The verify stage: a second model's label probabilities for every attempt."""
