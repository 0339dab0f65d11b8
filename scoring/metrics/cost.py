"""What sampling costs: n trials of a question at the prices of an API.

Source: MaP (Wang et al., 2025), appendix C.
"""

from typing import Any

import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import nonnegative_array
from bayes_at_n.scoring.numerics.results import result


def sampling_cost(
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    n: npt.ArrayLike,
    cache_miss: npt.ArrayLike = 1.25,
    cache_hit: npt.ArrayLike = 0.125,
    output: npt.ArrayLike = 10.0,
) -> Any:
    """Price n trials of a question, of which the first reads the prompt and others reuse it::

        cost = cache_miss input_tokens + cache_hit input_tokens (n - 1) + output output_tokens n

    k is not in it: all scores of the same n trials cost the same, and MaP's cost of Pass@k is that
    of n = k trials.

    ``input_tokens`` are those of the prompt, or their mean over questions, and ``output_tokens``
    those of a completion, or their mean over attempts; ``n``, at least 1, are trials of a question.
    ``cache_miss`` and ``cache_hit`` are prices of an input token that is read for the first time,
    or held by the cache, and ``output`` that of an output token; the defaults are those of MaP's
    Table 6, where a prompt has 4 tokens to each token of its completion. All are 0 or more, and
    broadcast. Raises ValueError: others. The cost is a float, or an array of the broadcast shape.

    >>> sampling_cost(4, 1, [1, 2, 4, 8, 16]).tolist()
    [15.0, 25.5, 46.5, 88.5, 172.5]
    """
    read, written = (
        nonnegative_array(tokens, "tokens") for tokens in (input_tokens, output_tokens)
    )
    trials = nonnegative_array(n, "n")
    miss, hit, price = (nonnegative_array(of, "prices") for of in (cache_miss, cache_hit, output))
    if (trials < 1).any():
        raise ValueError(f"n is {trials.min():g}: pass a number of trials, at least 1")
    return result(miss * read + hit * read * (trials - 1) + price * written * trials)
