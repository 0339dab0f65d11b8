"""The posterior of a mean over questions, as a Fourier series, without simulation.

The metric is S = (1/M) sum_a X_a with independent X_a = w . pi_a and pi_a ~ Dirichlet(nu_a). Here
the distinct weights, scaled to 0..1, are called levels. The characteristic function of one X is
an integral along a contour that comes from minus infinity, passes right of the points i v w_k and
goes back to minus infinity, T = sum_k nu_k::

    E exp(i v X) = Gamma(T) / (2 pi i) * integral of e^s prod_k (s - i v w_k)^(-nu_k) ds

It follows from writing the Dirichlet as Gamma variables divided by their sum, and holds for all
nu_k > 0. The product of these functions over questions, taken at the frequencies 2 pi j / L, gives
the coefficients of the Fourier series of the density of S on an interval of length L outside of
which S has a probability below 1e-14 on either side. Inputs are taken as checked.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.numerics.moments import posterior_moments

Complexes = npt.NDArray[np.complex128]

# Minus the logarithm of the probability that may lie outside of the interval, on each side.
TAIL = 32.3
# Frequencies are added until all coefficients are below NEGLIGIBLE, or there are MOST_TERMS.
NEGLIGIBLE = 1e-12
FEWEST_TERMS, MOST_TERMS = 32, 2**14
# SciPy's inverse of the Beta distribution is wrong for some parameters from about 1e8 on.
LARGEST_INVERTED = 1e7
# At most so many are worked on at once, for memory: tens of MB, or 200 MB with MOST_TERMS.
MOST_MATRICES, MOST_STATES, MOST_FREQUENCIES = 256, 64, 128


class Series(NamedTuple):
    """Densities of n posteriors, each as a Fourier series on [lower, lower + length]."""

    lower: Floats  # (n,)
    length: float
    terms: Complexes  # (n, J): the characteristic function at 2 pi j / length, from lower


def mean_quantiles(nu: Floats, levels: Floats, probabilities: Floats) -> Floats:
    """Return the quantiles of S, shape (n, q), for probabilities of shape (q,).

    nu are Dirichlet parameters, all above 0, shape (n, M, K), and levels distinct weights (K,) in
    rising order, the first 0 and the last 1.
    """
    if nu.shape[1:] == (1, 2) and nu.max() < LARGEST_INVERTED:
        return np.asarray(scipy.special.betaincinv(nu[:, :, 1], nu[:, :, 0], probabilities))
    quantiles = np.empty((len(nu), probabilities.size))
    for rows, series in _all_series(nu, levels):
        quantiles[rows] = _series_quantiles(series, probabilities)
    return quantiles


def _all_series(nu: Floats, levels: Floats) -> Iterator[tuple[Ints, Series]]:
    """Yield matrices, by number, and their densities; arguments as for :func:`mean_quantiles`."""
    n, questions, _ = nu.shape
    states, state = np.unique(nu.reshape(n * questions, -1), axis=0, return_inverse=True)
    # Row i counts in how many of its questions matrix i is in each state.
    entries = (np.ones(state.size), (np.arange(n).repeat(questions), state.ravel()))
    members = scipy.sparse.csr_array(entries, shape=(n, len(states)))
    lower, upper = _window(states, levels, members, questions)
    # Matrices that share their frequencies share the work, but a length made for a wide posterior
    # would be coarse for a narrow one: they share if their lengths are within a quarter octave.
    octave = np.floor(4 * np.log2(upper - lower))
    for value in np.unique(octave):
        alike = np.flatnonzero(octave == value)
        for rows in np.split(alike, range(MOST_MATRICES, alike.size, MOST_MATRICES)):
            used = np.unique(members[rows].indices)
            part = members[rows][:, used]
            length = float((upper - lower)[rows].max())
            start = np.clip((lower + upper)[rows] / 2 - length / 2, 0.0, 1.0 - length)
            terms = _terms(states[used], levels, part, questions, start, length)
            step = max(1, MOST_TERMS * 16 // terms.shape[1])
            for i in range(0, rows.size, step):
                block = slice(i, i + step)
                yield rows[block], Series(start[block], length, terms[block])


def _terms(
    states: Floats, levels: Floats, members: Any, questions: int, lower: Floats, length: float
) -> Complexes:
    """Return the characteristic functions of the means at as many frequencies as matter."""
    blocks: list[Complexes] = []
    first, last = 1, FEWEST_TERMS
    while True:
        v = 2 * np.pi / length * np.arange(first, last + 1)
        phi = characteristic(states, levels, v / questions)
        # A product of values this small is 0, and the logarithm of 0 would not be finite.
        logs = np.log(np.where(np.abs(phi) > 1e-100, phi, 1e-100))
        blocks.append(np.exp(members @ logs - 1j * v * lower[:, None]))
        tail = np.abs(blocks[-1][:, blocks[-1].shape[1] // 2 :]).max()
        if tail < NEGLIGIBLE or last == MOST_TERMS:
            return np.concatenate(blocks, axis=1)
        first, last = last + 1, 2 * last


def _series_quantiles(series: Series, probabilities: Floats) -> Floats:
    """Return quantiles, shape (n, q)."""
    integral = _integral(series)
    # The sums on a grid fine enough for the last term give brackets.
    size = 4 * series.terms.shape[1]
    grid = np.arange(size + 1) / size
    waves = np.fft.irfft(np.pad(integral.conj(), ((0, 0), (1, 0))), n=size, axis=1) * size
    values = grid[:-1] + 2 * integral.real.sum(axis=1)[:, None] - waves
    above = values[:, :, None] >= probabilities
    end = np.where(above.any(axis=1), above.argmax(axis=1), size)
    # Wider by one on each side, since a quantile may be a point of the grid, up to rounding.
    low, high = grid[np.maximum(end - 2, 0)], grid[np.minimum(end + 1, size)]
    u = (low + high) / 2
    # Newton, and halving where Newton would leave the bracket.
    for _ in range(8):
        error = _integrate(integral, u) - probabilities
        low, high = np.where(error < 0, u, low), np.where(error < 0, high, u)
        slope = 1 + 2 * _sum(series.terms, u).real
        step = u - error / np.where(slope > 0, slope, 1.0)
        u = np.where((slope > 0) & (step >= low) & (step <= high), step, (low + high) / 2)
    return np.asarray(series.lower[:, None] + series.length * u)


def characteristic(nu: Floats, levels: Floats, v: Floats) -> Complexes:
    """Return E exp(i v w . pi), shape (S, J), under Dirichlet(nu), nu of S states, shape (S, K).

    v are frequencies (J,) in rising order, at least 0. The absolute error is about 1e-14, and grows
    like the square root of T.
    """
    totals = nu.sum(axis=1)
    phi = np.empty((len(nu), v.size), dtype=np.complex128)
    for total in np.unique(totals):
        states = np.flatnonzero(totals == total)
        # All constant factors, Gamma(T) among them, are what makes the value at v = 0 equal 1.
        factor = _loop(nu[states[:1]], levels, np.zeros(1), total)[0, 0].real
        for block in np.split(states, range(MOST_STATES, states.size, MOST_STATES)):
            phi[block] = _same_total(nu[block], levels, v, total) / factor
    return phi


def _same_total(nu: Floats, levels: Floats, v: Floats, total: float) -> Complexes:
    """Return the integrals, without their common factor, for states of one T."""
    integrals = np.zeros((len(nu), v.size), dtype=np.complex128)
    # Points that are far from each other get a loop each, which costs the same for every v; one
    # contour around both would need nodes in proportion to v. Which points those are depends on v.
    apart, gaps = 2 * _reach(total), np.diff(levels)
    changes = np.searchsorted(v, apart / gaps)
    steps = np.arange(0, v.size + MOST_FREQUENCIES, MOST_FREQUENCIES).clip(max=v.size)
    edges = np.unique([*changes, *steps])
    for start, stop in pairwise(edges):
        cuts = np.flatnonzero(v[start] * gaps >= apart) + 1
        for first, last in pairwise([0, *cuts, levels.size]):
            part = _loop(nu, levels, v[start:stop], total, first, last)
            integrals[:, start:stop] += part
    return integrals


# Contours are s = x(u) + i (centre + u) with x(u) = T + 3 - cosh(u / width) / cosh(half / width),
# |u| <= half + reach, where the points lie at |u| <= half. Right of them x hardly moves, so that
# equal steps of u suffice for every distance of the points; beyond, e^x falls as fast as wanted.
# Of e^s s^(-T), normalised, the largest value on the contour is near 1: nothing cancels.


def _width(total: float) -> float:
    return 2 * float(np.sqrt(total)) + 1


@lru_cache
def _reach(total: float) -> float:
    """How far above the highest point the integrand has fallen to e^-40 of its largest value."""
    width = _width(total)
    u = np.linspace(0, 6 * width, 600)
    x, slope = total + 3 - np.cosh(u / width), np.sinh(u / width) / width
    size = x - total - total / 2 * np.log((x**2 + u**2) / total**2) + np.log1p(slope**2) / 2
    return float(u[np.argmax(size < -40)])


def _loop(
    nu: Floats, levels: Floats, v: Floats, total: float, first: int = 0, last: int | None = None
) -> Complexes:
    """Integrate around the points of ``levels[first:last]``, for all states and v."""
    width, reach = _width(total), _reach(total)
    bottom, top = v * levels[first:last][0], v * levels[first:last][-1]
    half = ((top - bottom) / 2)[:, None]
    nodes = 2 * int(np.ceil((half.max() + reach) / (0.4 * np.sqrt(total)))) + 1
    u = (half + reach) * np.linspace(-1, 1, nodes)
    # cosh(u / width) / cosh(half / width) without overflow.
    ratio = np.exp((np.abs(u) - half) / width) / (1 + np.exp(-2 * half / width))
    fall = np.exp(-2 * np.abs(u) / width)
    x, slope = 3 - ratio * (1 + fall), -np.sign(u) * ratio * (1 - fall) / width
    height = (bottom + top)[:, None] / 2 + u
    # log((s - i v w_k) / T) from s - T, which is small beside a large T.
    a, b = x / total, (height - v[:, None] * levels[:, None, None]) / total
    logs = np.log1p(a * (2 + a) + b**2) / 2 + 1j * np.arctan2(b, 1 + a)
    powers = nu @ logs.reshape(levels.size, -1)
    common = x + 1j * height + np.log(1 - 1j * slope)
    values = np.exp(common - powers.reshape(-1, *common.shape))
    return np.asarray(values.sum(axis=-1) * ((half[:, 0] + reach) * 2 / (nodes - 1)))


def _window(states: Floats, levels: Floats, members: Any, questions: int) -> tuple[Floats, Floats]:
    """Return ends (n,) beyond which S has a probability below exp(-TAIL) each.

    Chernoff: P(S > E S + d) <= exp(K(t) - t M d) for every t > 0, with K the sum over questions
    of bounds to log E exp(t (X - E X)). Splitting each category into weights 0 and 1 makes X a
    Beta(T m, T (1 - m)) and all these expectations larger, so that bounds for the Beta hold.
    """
    total = states.sum(axis=1)[:, None]
    mean, variance = (x[:, None] for x in posterior_moments(states, levels))
    root = np.sqrt(total + 1)
    small = 4 * root.min() / np.sqrt(questions)
    t = np.geomspace(small, 16 * max(float(root.max()), float(total.max())), 48)
    ends = []
    for m in (mean, 1 - mean):
        even = t**2 / (8 * (total + 1))
        # With prod (a + i) / (T + i) <= prod (a + i) / T the moments are below those of a Gamma.
        gamma = -total * m * np.log1p(-np.minimum(t / total, 0.99)) - t * m
        near_zero = np.where(t < 0.99 * total, gamma, np.inf)
        # From e^-y <= 1 - y + y^2 / 2 for y = 1 - X.
        near_one = t**2 * (variance + (1 - m) ** 2) / 2
        bound = members @ np.minimum(np.minimum(even, near_zero), near_one)
        ends.append(((bound + TAIL) / t).min(axis=1) / questions)
    centre = members @ mean[:, 0] / questions
    return np.maximum(centre - ends[1], 0.0), np.minimum(centre + ends[0], 1.0)


def _integral(series: Series) -> Complexes:
    """Return the coefficients of the integral of the series: divided by 2 pi i j."""
    turns: Complexes = 2j * np.pi * np.arange(1, series.terms.shape[1] + 1)
    return series.terms / turns


def _integrate(integral: Complexes, u: Floats) -> Floats:
    """Return the integral from 0 to u, in units of the length; u has shape (n, q)."""
    at_zero = integral.real.sum(axis=1)[:, None]
    return np.asarray(u + 2 * (at_zero - _sum(integral, u).real))


def _sum(coefficients: Complexes, u: Floats) -> Complexes:
    """Return sum_j c_j exp(-2 pi i j u), j = 1..J, for u of shape (n, q)."""
    # In blocks of FEWEST_TERMS terms, so that few exponentials are needed.
    blocks = coefficients.reshape(len(coefficients), -1, FEWEST_TERMS)
    turn = -2j * np.pi * u[:, :, None]
    inner = np.exp(turn * np.arange(FEWEST_TERMS)) @ blocks.transpose(0, 2, 1)
    starts = np.exp(turn * (1 + FEWEST_TERMS * np.arange(blocks.shape[1])))
    return np.asarray((inner * starts).sum(axis=-1))
