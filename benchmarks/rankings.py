"""How long a fit of each method of `compare ranking=` takes, beside our default, avg with ranks.

  python -m benchmarks.rankings
  python -m benchmarks.rankings --models 10 --limit 600

Outcomes are simulated: abilities and difficulties in logits, as close as those of real models.
Processor seconds of a fit, the least of the rounds; the first also pays for imports, and counts
only where it reaches the limit. The ratio is to the default: avg, its sigma and ranks with ties.
"""

import time

import numpy as np

import scoring
from benchmarks import common
from pipeline.cohorts.rankings import fits
from pipeline.config.rankings import METHODS
from scoring.metrics.table import parse


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    common.add_rounds(parser, default=3)
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
        times, said = [], ""
        try:
            for found, took in fits(name, lambda: [outcomes] * (1 + args.rounds), args.limit):
                times.append(took)
                said = found if isinstance(found, str) else ""
        except TimeoutError:
            said = f"stopped after {args.limit} s"
        seconds = min(times[1:], default=max([*times, args.limit]))
        record[name] = seconds
        rows.append([name, seconds, seconds / default_s, said[:60] or method.grows])
    columns = [f"{shape}", "seconds a fit", "/ default", "grows as, or why there is none"]
    common.table(f"the least of {args.rounds} rounds", columns, rows)
    common.finish(args, record)


if __name__ == "__main__":
    common.main(main)
