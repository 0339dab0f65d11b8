"""What can be set: dataclasses of every verb, composed by Hydra and checked."""
