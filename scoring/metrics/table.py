"""The one table of metrics: what settings may name, and what every room reads a score from.

A metric is named as ``pass@8`` or ``g-pass@8:0.5``: a family, the attempts k that it is about, and
arguments. A new one is one entry of ``FAMILIES``; it then is a row of ``score``, a column of
``compare``, a protocol of ``trajectory`` and ``prr``, and an estimator of the studies.

>>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
>>> for name in ("bayes", "g-pass@4:0.75"):
...     print(parse(name).title(5), [round(x, 3) for x in parse(name).summary(R)])
Bayes@5 [0.643, 0.118, 0.411, 0.875]
G-Pass@4 (0.75) [0.7, 0.271, 0.14, 1.0]

A score that asks only how many of k attempts are correct is a list of credits for j = 0..k:

>>> FAMILIES["most@"] = lambda k: of_credit(f"Most@{k}", at_least(k - 1, k))
>>> metric = parse("most@3")
>>> round(metric.estimate(R), 3), [str(score) for score in metric.tables(4)[0]]
(0.85, ['0', '0', '1/2', '1', '1'])
>>> del FAMILIES["most@"]

From outside comes ``my.py:most``, a function of how many of a question's trials are correct::

    def most(correct, trials):
        return correct > trials / 2  # from 0 to 1; fractions stay exact
"""

import difflib
import inspect
import math
import re
import runpy
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.scoring.metrics import OWN
from bayes_at_n.scoring.metrics.bayes import avg, avg_ci, bayes, bayes_ci
from bayes_at_n.scoring.metrics.empirical import score_ci
from bayes_at_n.scoring.metrics.geom import geom_at_k
from bayes_at_n.scoring.metrics.metric import (
    CONFIDENCE,
    VERIFIER,
    Value,
    of_count,
    of_credit,
    of_votes,
)
from bayes_at_n.scoring.metrics.metric import Metric as Metric
from bayes_at_n.scoring.metrics.passk import (
    area,
    naive_pass_at_k,
    needed,
    pass_at_k_sigma,
    spectrum,
    threshold_spectrum_at_k_ci,
    upper_half,
)
from bayes_at_n.scoring.metrics.votes import (
    Ballots,
    best_at_k,
    best_at_k_sigma,
    cons_at_k,
    cons_at_k_sigma,
    weighted_cons_at_k,
    weighted_cons_at_k_sigma,
)
from bayes_at_n.scoring.numerics.credit import at_least, by_state, check_powers, enough_binary
from bayes_at_n.scoring.numerics.inputs import Floats, Ints, Outcomes, check_k, check_share
from bayes_at_n.scoring.numerics.results import Summary as Summary
from bayes_at_n.scoring.numerics.results import result


def _pass(label: str, k: int) -> Metric:
    return of_credit(label, at_least(1, k), sigma=partial(pass_at_k_sigma, k=k))


def _geom(k: int, a: float = 0.5, b: float = 0.5) -> Metric:
    """The mean over questions of (Pass@k)^a (Pass^k)^b."""

    def value(c: int, n: int) -> Any:
        subsets, wrong, right = (math.comb(trials, k) for trials in (n, n - c, c))
        return ((subsets - wrong) / subsets) ** a * (right / subsets) ** b

    a, b = _powers(a, b)
    score = partial(geom_at_k, k=k, pass_power=a, unanimous_power=b)
    return of_count(f"Geom@{k}", k, score, value)


def _weighted(k: int, scores: str) -> Metric:
    def score(R: Ballots, k: int) -> Any:
        return weighted_cons_at_k(R, k)[0]

    label, sigma = f"Cons@{k} by {scores}", weighted_cons_at_k_sigma
    error = partial(weighted_cons_at_k, k=k)
    return of_votes(label, k, score, sigma, scores, error=lambda R: error(R)[1])


def _best(k: int, scores: str) -> Metric:
    return of_votes(f"Best@{k} by {scores}", k, best_at_k, best_at_k_sigma, scores)


def _tailpass(k: int, t: float) -> Metric:
    """At least t of k new attempts are correct: the posterior mean, with its credible interval."""
    least = _threshold(t, k)
    posterior = partial(threshold_spectrum_at_k_ci, k=k, weights=np.eye(k)[least - 1])

    def value(c: int, n: int) -> Fraction:
        ways = (math.comb(c + j, j) * math.comb(n - c + k - j, k - j) for j in range(least, k + 1))
        return Fraction(sum(ways), math.comb(n + k + 1, k))

    return of_count(f"TailPass@{k}", 1, lambda R: posterior(R).value, value, posterior)


def _threshold(t: float, k: int) -> int:
    """Check a threshold, t of k correct attempts. Raises ValueError: no whole number in 1..k."""
    if t not in range(1, k + 1):
        raise ValueError(f"the threshold is {t:g}: pass a whole number of attempts, from 1 to {k}")
    return int(t)


def own(file: str, function: str) -> Metric:
    """Make a metric of a user's function of (correct, trials) of a question, from 0 to 1.

    Its score is the mean over questions; the file runs when the first score is asked for, once.
    Raises ValueError, then: no such file or function; what it raises; a score that cannot be.
    """
    name, path = f"{file}:{function}", Path(file).expanduser()

    @cache
    def loaded() -> Any:
        return runpy.run_path(str(path))[function]

    @cache
    def value(correct: int, trials: int) -> Value:
        try:
            score = loaded()(correct, trials)
            exact = Fraction(score) if isinstance(score, int | Fraction) else float(score)
        except (Exception, SystemExit) as error:  # whatever a user's code raises
            raise ValueError(f"{name}: {type(error).__name__}: {error}") from error
        if not 0 <= exact <= 1:
            raise ValueError(f"{name}: {score!r} for {correct} of {trials}: return 0 to 1")
        return exact

    def score(R: Outcomes) -> Any:
        [scores] = by_state(_values, (value,), *enough_binary(R, 1, name), 1)
        return result(scores.mean(axis=-1))

    return replace(of_count(function, 1, score, value), name=name, own=str(path))


def _values(value: Callable[[int, int], Value], correct: Ints, trials: Ints) -> tuple[Floats]:
    pairs = zip(correct.tolist(), trials.tolist(), strict=True)
    return (np.array([float(value(c, n)) for c, n in pairs]),)


def _powers(a: float, b: float) -> tuple[float, float]:
    """The powers of a blend, which may be 0 but not negative, and not both 0."""
    if min(check_powers(a, b)) < 0:
        raise ValueError(f"the powers are {a:g} and {b:g}: pass two of 0 or more")
    return a, b


def _bayes(label: str = "Bayes@{trials}") -> Metric:
    """Bayes@N under the uniform prior, equation 14; avg@N ranks in the same way."""
    of = (lambda R: bayes(R)[0]), (lambda c, n: Fraction(c + 1, n + 2))
    return of_count(label, 0, *of, bayes_ci)


def _estimated() -> Metric:
    """Bayes@N under the prior that is estimated from all questions: no table of one question."""

    def interval(R: Outcomes, confidence: float, bounds: Any) -> Summary:
        return score_ci(R, None, confidence)

    def value(c: int, n: int) -> Value:
        raise ValueError("bayes with an estimated prior is of all questions: pass bayes-uniform")

    return of_count("Bayes@{trials}", 1, lambda R: score_ci(R).value, value, interval)


# A key has small letters, digits, - and _, and ends with @ or ^ if the family has a k. Labels say
# {trials} where the number of trials is part of them.
FAMILIES: dict[str, Callable[..., Metric]] = {
    "bayes": lambda: _bayes(),  # see `parse`
    "bayes-uniform": lambda: _bayes("Bayes@{trials} (uniform prior)"),
    "avg": lambda: of_count("avg@{trials}", 1, lambda R: avg(R)[0], Fraction, avg_ci),
    "pass@": lambda k: _pass(f"Pass@{k}", k),
    "pass^": lambda k: of_credit(f"Pass^{k}", at_least(k, k)),
    "g-pass@": lambda k, tau=1.0: of_credit(f"G-Pass@{k}", at_least(needed(tau, k), k)),
    "mg-pass@": lambda k: of_credit(f"mG-Pass@{k}", upper_half(k)),
    "maj@": lambda k: of_credit(f"Maj@{k}", at_least(k // 2 + 1, k)),
    "max@": lambda k: _pass(f"Max@{k}", k),  # of outcomes 0 and 1 the best of k is Pass@k
    "auc@": lambda k: of_credit(f"AUC@{k}", area(k)),
    "naive-pass@": lambda k: of_count(  # 1 - (1 - c/n)^k, from n = k, as Pass@k
        f"naive Pass@{k}",
        k,
        partial(naive_pass_at_k, k=k),
        lambda c, n: 1 - Fraction(n - c, n) ** k,
    ),
    "spectrum@": lambda k, *w: of_credit(f"threshold spectrum@{k}", spectrum(w, k)),
    "tailpass@": _tailpass,
    "tailpass-empirical@": lambda k, t: of_credit(
        f"empirical TailPass@{k}", at_least(_threshold(t, k), k)
    ),
    "geom@": _geom,
    "geom-ds@": lambda k, a=0.5, b=0.5: of_credit(
        f"Geom-DS@{k}", at_least(1, k), at_least(k, k), powers=_powers(a, b)
    ),
    "geo-spectrum@": lambda k, lam=0.5: of_credit(
        f"GeoSpectrum@{k}",
        at_least(1, k),
        upper_half(k),
        powers=(check_share(lam, "lambda"), 1 - lam),
    ),
    # Of answers: votes, also weighed by a score of the attempts, and the best attempt by it.
    "cons@": lambda k: of_votes(f"Cons@{k}", k, cons_at_k, cons_at_k_sigma),
    "cons-confidence@": lambda k: _weighted(k, CONFIDENCE),
    "cons-verifier@": lambda k: _weighted(k, VERIFIER),
    "best-confidence@": lambda k: _best(k, CONFIDENCE),
    "best-verifier@": lambda k: _best(k, VERIFIER),
}


def parse(text: str, prior: str = "uniform") -> Metric:
    """Find the metric of a name: FAMILY, FAMILY@k, FAMILY@k:ARGUMENT:... or FILE.py:function.

    `prior` is that of "bayes": "uniform", the paper's, or "estimated", :func:`scoring.score_ci`.
    Raises ValueError: no such metric (with the nearest ones), or a k or argument that cannot be.

    >>> parse("mg-pass@8").label, parse("G-Pass@8:.5").name, parse("bayes").title(80)
    ('mG-Pass@8', 'g-pass@8:0.5', 'Bayes@80')
    >>> parse("pas@8")
    Traceback (most recent call last):
    ValueError: pas@8: no such metric (did you mean pass@8 or g-pass@8?)
    """
    if outside := re.fullmatch(OWN, text.strip()):
        return own(*outside.groups())
    shape = re.fullmatch(r"([a-z0-9_-]+[@^]?)(\d*)((?::[^:]+)*)", text.strip().lower())
    family, count, rest = shape.groups() if shape else (text, "", "")
    count = count.lstrip("0") or count[-1:]
    if family not in FAMILIES or (family[-1] in "@^") != bool(count):
        raise ValueError(f"{text}: no such metric ({_nearest(family, count, rest)})")
    try:
        k = [check_k(int(count))] if count else []
        arguments = [float(argument) for argument in rest.split(":")[1:]]
        inspect.signature(FAMILIES[family]).bind(*k, *arguments)
        metric = FAMILIES[family](*k, *arguments)
        if family == "bayes" and prior == "estimated":
            metric = _estimated()
    except TypeError:
        parts = inspect.signature(FAMILIES[family]).parameters
        takes = ":".join([family + count, *(name.upper() for name in parts if name != "k")])
        raise ValueError(f"{text}: write {takes}") from None
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None
    short = [f"{argument:.12g}" for argument in arguments]
    label = metric.label + f" ({', '.join(short)})" * bool(short)
    return replace(metric, name=":".join([family + count, *short]), label=label)


def parse_all(names: Iterable[str], prior: str = "uniform") -> list[Metric]:
    """Find the metrics of some names in their order, each once; else as :func:`parse`."""
    found = (parse(name, prior) for name in names)
    return list({metric.name: metric for metric in found}.values())


def _nearest(family: str, count: str, rest: str) -> str:
    known = {name: name + (count or "8" if name[-1] in "@^" else "") for name in FAMILIES}
    near = difflib.get_close_matches(family, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(known[name] + rest for name in near)}?"
    return f"known: {', '.join(name + 'K' * (name[-1] in '@^') for name in known)}"
