"""The settings of trackers of experiments."""

from dataclasses import dataclass

from bayes_at_n.pipeline.config.checks import limited

TRACKERS = ("wandb", "mlflow", "trackio")
PROJECT = "bayes-at-n"


@dataclass
class TrackConfig:
    """Where a run is shown while it is made; addresses and keys are settings of the libraries."""

    to: list[str] = limited([], one_of=TRACKERS)
    project: str = limited(PROJECT, named=True)
