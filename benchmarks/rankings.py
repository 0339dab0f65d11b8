"""How long a fit of each method of `compare ranking=` takes, beside our default, avg with ranks.

  python -m benchmarks.rankings
  python -m benchmarks.rankings --models 10 --limit 600

Outcomes are simulated: abilities and difficulties in logits, as close as those of real models.
Processor seconds of a fit, the mean of as many as take two seconds (2 to 200) without the first,
which pays for imports. The ratio is to the default: avg, its interval and ranks with ties.
"""

import time
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare.rankings import fits
from bayes_at_n.pipeline.config.analysis import METHODS
from bayes_at_n.scoring.metrics.table import parse
from benchmarks import common


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    for name, value in (("models", 20), ("questions", 30), ("trials", 80), ("limit", 120)):
        parser.add_argument(f"--{name}", type=int, default=value, help="default %(default)s")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    ability = np.linspace(-1, 1, args.models)[:, None] + rng.normal(0, 1.5, args.questions)
    shape = (args.models, args.questions, args.trials)
    outcomes = (rng.random(shape) < 1 / (1 + np.exp(-ability[..., None]))).astype(np.uint8)
    began = time.process_time()
    for _ in range(10):
        default = parse("avg").summary(outcomes, 0.95)
        scoring.ranks_with_uncertainty(default.value, default.sigma)
    default_s = (time.process_time() - began) / 10
    record, rows = {"avg": default_s}, [["avg (the default)", default_s, 1.0, ""]]
    for name, method in METHODS.items():
        seconds, said = measured(name, outcomes, args.limit)
        record[name] = seconds
        rows.append([name, seconds, seconds / default_s, said[:60] or method.grows])
    columns = [f"{shape}", "seconds a fit", "/ default", "grows as, or why there is none"]
    common.table("one fit of each method", columns, rows)
    common.finish(args, record)


def measured(name: str, outcomes: Any, limit: float) -> tuple[float, str]:
    """Seconds of a fit, or the limit; and why there are no ranks."""
    times, said, many = [], "", 2
    try:
        for found, took in fits(name, lambda: [outcomes] * 201, limit):
            times.append(took)
            said = found if isinstance(found, str) else ""
            if len(times) == 2:
                many = int(np.clip(2 / max(took, 1e-3), 2, 200))
            if len(times) > many:
                break
    except TimeoutError:
        if len(times) < 2:
            return limit, f"stopped after {limit} s"
    return float(np.mean(times[1:])), said


if __name__ == "__main__":
    common.main(main)
