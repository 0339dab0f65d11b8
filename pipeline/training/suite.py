"""MaP's fourteen benchmarks and their protocols, and its Tables 1, 2 and 4 in the same form.

Generative benchmarks are sampled, for Pass@k, and decoded greedily. Where a dataset has a column of
options the likeliest letter counts; MMLU and CMMLU are sampled, too, for Table 4. AGIEval is its
seven English parts that have a dataset here, as one list of questions.

Source: MaP (Wang et al., 2025), section 3 and Tables 1, 2 and 4.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.multirun import Request, TrajectoryConfig


class Benchmark(NamedTuple):
    """A benchmark of MaP: its datasets here, and the kinds of their runs ("": sampled)."""

    datasets: Sequence[str]
    kinds: Sequence[str]
    trials: int = 16


_PARTS = "aqua-rat logiqa-en lsat-ar lsat-lr lsat-rc math sat-math"
_SAMPLED, _GREEDY, _CHOICE = ("", "greedy"), ("greedy",), ("likelihood",)
BENCHMARKS = {
    "AGIEval": Benchmark([f"agieval-{part}" for part in _PARTS.split()], _GREEDY),
    "RACE": Benchmark(["race"], _CHOICE),
    "SQuAD2.0": Benchmark(["squad2"], _GREEDY),
    "MMLU": Benchmark(["mmlu"], ("", "likelihood"), 4),
    "CMMLU": Benchmark(["cmmlu"], ("", "likelihood"), 4),
    "CEval": Benchmark(["ceval"], _CHOICE),
    "GSM8K": Benchmark(["gsm8k"], _SAMPLED),
    "MATH": Benchmark(["math"], _SAMPLED),
    "GSM-Plus": Benchmark(["gsm-plus"], _GREEDY),
    "CMATH": Benchmark(["cmath"], _GREEDY),
    "HumanEval": Benchmark(["humaneval"], _SAMPLED),
    "MBPP": Benchmark(["mbpp"], _SAMPLED),
    "MBPP-Plus": Benchmark(["mbpp-plus"], _GREEDY),
    "HumanEval-Plus": Benchmark(["humaneval-plus"], _GREEDY),
}
TABLE_1 = ("GSM8K", "MATH", "HumanEval", "MBPP")
TABLE_4 = {
    "Math (Gen)": TABLE_1[:2],
    "Code (Gen)": TABLE_1[2:],
    "Knowledge (MC)": ("MMLU", "CMMLU"),
}


def protocols(settings: Request[TrajectoryConfig]) -> Iterator[tuple[list[str], Sequence[str]]]:
    """Yield the settings of each dataset's runs, and their kinds.

    Raises UserError: a suite, and a dataset beside it.
    """
    [model], cfg = settings.models, settings.cfg
    if not cfg.suite:
        kinds = ("", "greedy")[: 1 + cfg.greedy]
        yield from (([*model, *dataset], kinds) for dataset in settings.datasets)
        return
    if any(settings.datasets):
        raise UserError(f"{settings.datasets[0][0]}: leave it out; suite={cfg.suite} has its own")
    for benchmark in BENCHMARKS.values():
        for name in benchmark.datasets:
            # Typed settings come last, so they replace the suite's.
            first = [f"dataset={name}", f"sampling.trials={benchmark.trials}"]
            yield [*first, *model], benchmark.kinds


def label(dataset: str) -> str:
    """Return the benchmark that a dataset belongs to; itself if to none."""
    return next((name for name, of in BENCHMARKS.items() if dataset in of.datasets), dataset)
