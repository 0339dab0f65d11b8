"""The methods of the library scorio that rank models, and what of them `compare` shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from bayes_at_n.pipeline.base.errors import install
from bayes_at_n.pipeline.config.checks import one_of

SEED = 0  # of methods that draw, and of replicates


class Method(NamedTuple):
    """A function of `scorio.rank`. All take complete outcomes, 0 or 1, of two models or more."""

    grows: str  # its time, with L models, M questions, N trials of each
    needs: str = ""  # what else it asks of outcomes
    parameters: Mapping[str, Any] = {}  # that are not its defaults
    telling: bool = False  # refuses questions that all attempts got right, or all wrong
    error: float = 0  # of its scores, as a share: what an optimiser leaves open


_BEATEN = "every model beats some other and is beaten, itself or by a chain of others"
_MIXED = "no model that is always right, or always wrong"
_LONG = {"max_iter": 5000}
_GROUPS = {
    "inverse_difficulty borda majority_judgment rasch_mml rasch_mml_credible": Method("L M N"),
    "thompson": Method("L M N + 10,000 L", "", {"seed": SEED}),
    "copeland win_rate minimax schulze ranked_pairs nanson baldwin": Method("L M N + L⁴"),
    "kemeny_young": Method("2^L at worst"),
    "elo glicko trueskill": Method("L² M N"),
    "plackett_luce_map bradley_terry_luce_map": Method("L² M N", error=1e-5),
    "bradley_terry_map bradley_terry_davidson_map rao_kupper_map": Method("L² M N", error=1e-5),
    "pagerank spectral rank_centrality alpharank nash serial_rank hodge_rank": Method("L² M N"),
    "bradley_terry bradley_terry_davidson rao_kupper": Method("L² M N", _BEATEN, error=1e-5),
    "plackett_luce bradley_terry_luce": Method("L² M N", _BEATEN, error=1e-5),
    "bayesian_mcmc": Method("L² M N + 6,000 L²", "", {"seed": SEED}),
    "rasch rasch_2pl rasch_3pl dynamic_irt": Method("L M N", _MIXED, _LONG, True, 1e-5),
    "rasch_map rasch_2pl_map rasch_3pl_map mirt": Method("L M N", "", _LONG, True, 1e-5),
    "davidson_luce": Method("L⁴ M N", _BEATEN, error=1e-5),
    "davidson_luce_map": Method("L⁴ M N", error=1e-5),
}
# All of scorio.rank 0.2.3 but avg, bayes, pass_at_k and its kin, which are scores here.
METHODS = {name: method for names, method in _GROUPS.items() for name in names.split()}


@dataclass
class RankingConfig:
    """Rankings by other methods beside the default."""

    # Such as bradley_terry,rasch,borda; all: every one. Scores, as avg or pass@8, are of scoring.
    methods: list[Annotated[str, one_of("all", *METHODS)]] = field(default_factory=list)
    replicates: Annotated[int, Field(ge=2, le=10**6)] | None = None  # of trials: ranks' intervals
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None  # a method may take; compare: 60

    def problems(self) -> Iterator[str]:
        if self.methods and find_spec("scorio") is None:
            yield f"methods: scorio is not installed: {install('rank')}"

    def chosen(self) -> list[str]:
        return [*METHODS] if "all" in self.methods else [*dict.fromkeys(self.methods)]
