"""What sampling costs: n trials of a question at the prices of an API.

Source: MaP (Wang et al., 2025), appendix C.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from scoring.numerics.arrays import broadcast
from scoring.numerics.arrays import check_sigma as check_amounts
from scoring.numerics.checks import result


def sampling_cost(
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    n: npt.ArrayLike,
    cache_miss: npt.ArrayLike = 1.25,
    cache_hit: npt.ArrayLike = 0.125,
    output: npt.ArrayLike = 10.0,
) -> Any:
    """Cost of n trials of a question, of which the first reads the prompt and the others reuse it.

    ::

        cost = cache_miss input_tokens + cache_hit input_tokens (n - 1) + output output_tokens n

    k is not in it: all scores of the same n trials cost the same, and MaP's cost of Pass@k is that
    of n = k trials.

    Args:
        input_tokens: tokens of the prompt, or their mean over questions, at least 0.
        output_tokens: tokens of a completion, or their mean over attempts, at least 0.
        n: trials of a question, at least 1. All arguments are broadcast.
        cache_miss: price of an input token that is read for the first time, at least 0.
        cache_hit: price of an input token that the cache holds, at least 0.
        output: price of an output token, at least 0.

    Other numbers and shapes are a ValueError. The cost, in units of the prices, is a float, or an
    array of the broadcast shape. The default prices are those of MaP's Table 6, where a prompt has
    4 tokens to each token of its completion.

    >>> sampling_cost(4, 1, [1, 2, 4, 8, 16]).tolist()
    [15.0, 25.5, 46.5, 88.5, 172.5]
    """
    read, written, trials, miss, hit, price = broadcast(
        input_tokens=check_amounts(input_tokens, "input_tokens"),
        output_tokens=check_amounts(output_tokens, "output_tokens"),
        n=check_amounts(n, "n"),
        cache_miss=check_amounts(cache_miss, "cache_miss"),
        cache_hit=check_amounts(cache_hit, "cache_hit"),
        output=check_amounts(output, "output"),
    )
    if (trials < 1).any():
        raise ValueError(f"n is {trials.min():g}: pass a number of trials, at least 1")
    return result(miss * read + hit * read * (trials - 1) + price * written * trials)
