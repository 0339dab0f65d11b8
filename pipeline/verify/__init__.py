"""The verify stage: label probabilities of a second model, the verifier, for every attempt."""
