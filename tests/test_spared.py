"""What tests spare gives the same as Hydra's own composition of everything."""

import hydra
import pytest
import spared
from omegaconf import OmegaConf

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose


def composed(settings: list[str]) -> str:
    try:
        return OmegaConf.to_yaml(OmegaConf.structured(compose.load(settings)))
    except UserError as error:
        return str(error)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "model=qwen3-4b dataset=aime25 sampling.trials=8",
        "sampling=greedy sampling.temperature=0.5 engine.args.seed=3",
        "verifier=none model.engine_args.max_model_len=10 trials=3",
        "dataset=gpqa prompt=choice prompt.shuffle=trial dataset.fields.answer=a",
        "sampling.trials=0",
        "sampling.trial=8",
        "engine.args={a: 1} ++engine.args.b=2",
        "rubric.weights.exact-match=[0,1] tag=x",
        "model=none-such",
    ],
)
def test_a_spared_composition_is_hydras(words: str) -> None:
    settings = [word for word in words.split(" ") if word] if "{" not in words else [words]
    whole = composed(settings)
    if not spared.WHOLE:
        pytest.skip("nothing is spared in soak")
    kept = hydra.compose
    hydra.compose = spared.WHOLE["spared"][0]
    try:
        assert composed(settings) == whole == composed(settings)
    finally:
        hydra.compose = kept
