"""The one table of metrics: what settings may name, and what every room reads a score from.

A metric is named as ``pass@8`` or ``g-pass@8:0.5``: a family, the attempts k that it is about, and
arguments. A new one is one entry of ``FAMILIES``; it then is a row of ``score``, a column of
``compare``, a protocol of ``trajectory`` and ``prr``, and an estimator of the studies.

>>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
>>> for name in ("bayes", "g-pass@4:0.75"):
...     print(parse(name).title(5), [round(x, 3) for x in parse(name).summary(R)])
Bayes@5 [0.643, 0.118, 0.411, 0.875]
G-Pass@4 (0.75) [0.7, 0.271, 0.168, 1.0]

A score that asks only how many of k attempts are correct is a list of credits for j = 0..k:

>>> FAMILIES["most@"] = MetricFamily("Most@{k}", lambda k: of_credit(at_least(k - 1, k)))
>>> metric = parse("most@3")
>>> round(metric.estimate(R), 3), [str(score) for score in metric.estimator.tables(4)[0]]
(0.85, ['0', '0', '1/2', '1', '1'])
>>> del FAMILIES["most@"]
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from scoring.metrics import forms
from scoring.metrics.forms import Estimator, Form, at_least, of_credit, upper_half
from scoring.metrics.passk_variance import pass_at_k_sigma
from scoring.metrics.thresholds import needed
from scoring.numerics.checks import UNIT, check_k, check_share
from scoring.numerics.inputs import Outcomes
from scoring.numerics.results import Summary as Summary
from scoring.numerics.results import normal_summary

DEFAULT = ("bayes", "avg", "pass@1", "pass@2", "pass@4", "pass@8")


class MetricFamily(NamedTuple):
    """One entry of the table: a label, and the form for k attempts and the arguments."""

    # Its key in FAMILIES: small letters, digits, - and _; with @ or ^ at its end if it has a k.
    label: str  # {k} attempts, {trials} of the outcomes
    form: Callable[..., Form]
    least: int | None = None  # trials that every question needs; None: k


@dataclass(frozen=True, eq=False)
class Metric:
    """A score of outcomes 0 and 1, under the name that settings have."""

    name: str  # "g-pass@8:0.5"
    label: str  # "G-Pass@8 (0.5)", "Bayes@{trials}"
    k: int  # trials that every question needs at least
    form: Form

    @property
    def key(self) -> str:
        """Its name as a column's: letters, digits, points and underscores.

        >>> parse("pass@8").key, parse("pass^4").key, parse("g-pass@8:0.5").key
        ('pass_at_8', 'pass_hat_4', 'g_pass_at_8_0.5')
        """
        return re.sub("[-:]", "_", self.name.replace("@", "_at_").replace("^", "_hat_"))

    def title(self, trials: int | str = "N") -> str:
        """Its label, with the number of trials where that is part of it."""
        return self.label.format(trials=trials)

    def estimate(self, R: Outcomes) -> Any:
        """The score, a float or an array (...); R and errors: :func:`scoring.pass_at_k`."""
        return self.form.estimate(R)

    def summary(self, R: Outcomes, confidence: float = 0.95) -> Summary:
        """The score with its sigma and interval, at a confidence in (0, 1), moved into 0 to 1.

        Bayes@N and avg@N have the posterior's. All else is the unbiased estimate -/+ z times its
        standard deviation over repetitions of the trials, at the rates (c + 1/2) / (N + 1), as in
        :func:`scoring.pass_at_k_sigma`; of a blend to first order. R and errors: :meth:`estimate`.
        """
        if self.form.interval is not None:
            return self.form.interval(R, confidence=confidence, bounds=UNIT)
        sigma = (self.form.sigma or self.form.sampling_sigma)(R)
        return normal_summary(self.estimate(R), sigma, confidence, UNIT)

    @property
    def estimator(self) -> Estimator:
        """The same as exact tables, for rankings of many replicates (``scoring.studies``)."""
        return Estimator(self.title(), max(1, self.k), self.form.tables, self.form.powers)


def _pass(k: int) -> Form:
    return of_credit(at_least(1, k), sigma=partial(pass_at_k_sigma, k=k))


def _spectrum(k: int, *weights: float) -> Form:
    return of_credit(forms.spectrum(weights, k))


def _geom_ds(k: int, a: float = 0.5, b: float = 0.5) -> Form:
    return of_credit(at_least(1, k), at_least(k, k), powers=forms.nonnegative_powers(a, b))


def _geo_spectrum(k: int, lam: float = 0.5) -> Form:
    share = check_share(lam, "lambda")
    return of_credit(at_least(1, k), upper_half(k), powers=(share, 1 - share))


FAMILIES = {
    "bayes": MetricFamily("Bayes@{trials}", forms.bayes_form, 0),
    "avg": MetricFamily("avg@{trials}", forms.avg_form, 1),
    "pass@": MetricFamily("Pass@{k}", _pass),
    "pass^": MetricFamily("Pass^{k}", lambda k: of_credit(at_least(k, k))),
    "g-pass@": MetricFamily(
        "G-Pass@{k}", lambda k, tau=1.0: of_credit(at_least(needed(tau, k), k))
    ),
    "mg-pass@": MetricFamily("mG-Pass@{k}", lambda k: of_credit(upper_half(k))),
    "mg-pass-integral@": MetricFamily(
        "mG-Pass@{k} (integral)", lambda k: of_credit(forms.upper_ramp(k))
    ),
    "maj@": MetricFamily("Maj@{k}", lambda k: of_credit(at_least(k // 2 + 1, k))),
    "max@": MetricFamily("Max@{k}", _pass),  # of outcomes 0 and 1 the best of k is Pass@k
    "auc@": MetricFamily("AUC@{k}", lambda k: of_credit(forms.area(k))),
    "naive-pass@": MetricFamily("naive Pass@{k}", forms.naive_form),
    "spectrum@": MetricFamily("threshold spectrum@{k}", _spectrum),
    "geom@": MetricFamily("Geom@{k}", forms.geom_form),
    "geom-ds@": MetricFamily("Geom-DS@{k}", _geom_ds),
    "geo-spectrum@": MetricFamily("GeoSpectrum@{k}", _geo_spectrum),
}


def parse(text: str) -> Metric:
    """The metric of a name: FAMILY, FAMILY@k or FAMILY@k:ARGUMENT:...

    Raises:
        ValueError: no such metric (with the nearest ones), or a k or argument that cannot be.

    >>> parse("mg-pass@8").label, parse("G-Pass@8:.5").name, parse("bayes").title(80)
    ('mG-Pass@8', 'g-pass@8:0.5', 'Bayes@80')
    >>> parse("pas@8")
    Traceback (most recent call last):
    ValueError: pas@8: no such metric (did you mean pass@8 or g-pass@8?)
    """
    shape = re.fullmatch(r"([a-z0-9_-]+[@^]?)(\d*)((?::[^:]+)*)", text.strip().lower())
    family, count, rest = shape.groups() if shape else (text, "", "")
    count = count.lstrip("0") or count[-1:]
    if family not in FAMILIES or (family[-1] in "@^") != bool(count):
        raise ValueError(f"{text}: no such metric ({_nearest(family, count, rest)})")
    try:
        k = [check_k(int(count))] if count else []
        arguments = [float(argument) for argument in rest.split(":")[1:]]
        inspect.signature(FAMILIES[family].form).bind(*k, *arguments)
        form = FAMILIES[family].form(*k, *arguments)
    except TypeError:
        raise ValueError(f"{text}: {family}{count} takes other arguments") from None
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None
    short = [f"{argument:.12g}" for argument in arguments]
    label = FAMILIES[family].label.replace("{k}", count) + f" ({', '.join(short)})" * bool(short)
    least = FAMILIES[family].least
    name = ":".join([family + count, *short])
    return Metric(name, label, k[0] if least is None else least, form)


def parse_all(names: Iterable[str]) -> list[Metric]:
    """The metrics of some names in their order, each once; errors as for :func:`parse`."""
    return list({metric.name: metric for metric in map(parse, names)}.values())


def _nearest(family: str, count: str, rest: str) -> str:
    known = {name: name + (count or "8" if name[-1] in "@^" else "") for name in FAMILIES}
    near = difflib.get_close_matches(family, known, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(known[name] + rest for name in near)}?"
    return f"known: {', '.join(name + 'K' * (name[-1] in '@^') for name in known)}"
