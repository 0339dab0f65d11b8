"""The paper's experiments: our numbers against independent computations, and the paper's data."""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.analysis import AnalysisConfig, StudyConfig
from bayes_at_n.pipeline.config.compose import CONFIGS
from bayes_at_n.pipeline.paper import index, orders, printed, simulated, studies
from bayes_at_n.pipeline.paper.reproduce import STUDIES

TINY = {
    "matrices": 20,
    "tau_replicates": 40,
    "convergence_replicates": 200,
    "subset_replicates": 50,
    "coin_sets": 20,
    "separation_sets": 5,
    "separation_replicates": 200,
    "prior_replicates": 300,
}


def tiny(**more: Any) -> analysis.StudyPlan:
    return analysis.study_plan(AnalysisConfig(study=StudyConfig(preset="quick", **(TINY | more))))


def made(models: int = 3, trials: int = 12, seed: int = 0, dataset: str = "sums") -> Cohort:
    """Models whose chances differ a little, on ten questions."""
    rng = np.random.default_rng(seed)
    p = np.clip(
        rng.random((1, 10, 1)) + np.linspace(-0.25, 0.25, models)[:, None, None], 0.02, 0.98
    )
    names = [f"m{i}" for i in range(models)]
    outcomes = (rng.random((models, 10, trials)) < p).astype(int)
    return from_arrays(dataset, names, [f"q{i}" for i in range(10)], outcomes)


def the_papers(task: str, models: int = 20, trials: int = 12) -> Cohort:
    """A made-up cohort under the names of the paper's models, the last first."""
    cohort = made(models, trials, seed=len(task) + sum(map(ord, task)), dataset=task)
    names = [printed.short_names()[models - i] for i in range(models)]
    ids = [f"q{i}" for i in range(10)]
    return from_arrays(task, names, ids, np.asarray(cohort.matrix().data))


# Settings and data files.


def test_a_preset_holds_every_count_and_single_ones_replace_it() -> None:
    plan = analysis.study_plan(analysis.load(["tau_replicates=7"]))
    assert (plan.tau_replicates, plan.convergence_replicates) == (7, 100_000)
    assert StudyConfig(name=["cost", "coins"]).names() == ["coins", "cost"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("name=coin", "study.name=coin: .*coins"),
        ("preset=slow", "study.preset=slow: .*paper, quick"),
        ("coin_sets=1", "study.coin_sets=1"),
        ("study.seed=-1", "study.seed=-1"),
    ],
)
def test_settings_that_cannot_work_name_their_key(wrong: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        analysis.study_plan(analysis.load([wrong]))


def test_the_subsets_are_those_of_tables_8_to_10() -> None:
    found = printed.subsets()
    sizes = [len(subset.models) for subset in found]
    assert [sizes.count(size) for size in (5, 10, 15)] == [50, 20, 20]
    assert all(sorted(set(s.models)) == list(s.models) for s in found)
    assert all(1 <= n <= 20 for s in found for n in s.models)
    assert all(1 <= v <= 80 for s in found for v in s.printed.values())
    # Spot checks against the printed page.
    assert found[0].models == (4, 13, 14, 18, 19)
    assert found[0].printed == {"aime24": 13.5, "aime25": 69.0, "hmmt25": 11.9, "brumo25": 8.8}
    assert found[-1].printed == {"aime24": 73.1, "aime25": 78.7, "hmmt25": 72.7, "brumo25": 53.2}


def test_printed_numbers_have_known_fields_and_consistent_tables() -> None:
    found = printed.numbers()
    assert {n.version for n in found} == {"000", "001", "both"}
    reasons = {"exact", "rounded", "simulated", "bootstrap", "approximate"}
    assert {n.reason for n in found} == reasons
    by_id = {n.id: n.value for n in found}
    for z in ("aime25", "aime24", "hmmt25", "brumo25"):  # section 3.2 agrees with itself
        assert norm.cdf(by_id[f"ranks.z.{z}"]) == pytest.approx(by_id[f"ranks.rho.{z}"], abs=5e-4)
    for version, models in (("000", 11), ("001", 20)):
        for task in printed.TASKS:
            plain = _column(by_id, version, task, "plain")
            assert sorted(plain) == list(range(1, models + 1))
            dense = [
                rank
                for _, rank in sorted(zip(plain, _column(by_id, version, task, "ci"), strict=True))
            ]
            assert dense[0] == 1 and set(np.diff(dense)) <= {0, 1}
            ties = sum(dense.count(rank) > 1 for rank in set(dense))
            assert ties == by_id[f"ranks.{version}.ties.{task}"]
    for key in ("hours", "completion"):
        total = sum(by_id[f"cost.{key}.{task}"] for task in printed.TASKS)
        assert total == pytest.approx(by_id[f"cost.{key}.total"], abs=0.2)


def _column(by_id: Mapping[str, float], version: str, task: str, kind: str) -> list[int]:
    end = f".{task}.{kind}"
    return [
        int(v) for k, v in by_id.items() if k.startswith(f"ranks.{version}.") and k.endswith(end)
    ]


def test_the_eleven_models_fit_the_twenty_rows_as_the_data_file_says() -> None:
    by_id = {n.id: n.value for n in printed.numbers()}

    def rows(version: str) -> dict[str, tuple[float, ...]]:
        starts = {
            k.removeprefix(f"ranks.{version}.").rsplit(".", 2)[0]
            for k in by_id
            if k.startswith(f"ranks.{version}.") and k.endswith("plain")
        }
        return {
            s: tuple(by_id[f"ranks.{version}.{s}.{t}.plain"] for t in printed.TASKS) for s in starts
        }

    eleven = sorted(rows("000").items(), key=lambda item: item[1][1])
    twenty = sorted(rows("001").items(), key=lambda item: item[1][1])
    found: list[tuple[int, ...]] = [()]
    for i, (_, ranks) in enumerate(eleven):
        found = [
            (*fit, row)
            for fit, row in itertools.product(found, range(20))
            if all(
                (twenty[fit[j]][1][t] < twenty[row][1][t]) == (eleven[j][1][t] < ranks[t])
                for j in range(i)
                for t in range(4)
            )
        ]
    places = {name: sorted({1 + fit[i] for fit in found}) for i, (name, _) in enumerate(eleven)}
    assert len(found) == 6
    assert places.pop("Qwen3-Thinking") == [1, 2] and places.pop("OpenThinker2") == [9, 10, 11]
    assert {name: rows for name, rows in places.items()} == {
        "gpt-oss-high": [3], "gpt-oss-medium": [4], "gpt-oss-low": [8], "LIMO-v2": [13],
        "EXAONE-4.0": [14], "OpenThinker3": [16], "OR-Nemotron": [17], "DS-R1-Qwen": [18],
        "Sky-T1-Flash": [19],
    }  # fmt: skip
    named = [name for name, _ in twenty]
    assert named[:2] == ["Qwen3-Thinking", "Qwen3-4B"]  # settled by the text
    assert all(named[row - 1] == name for name, [row] in places.items())
    assert [n for n in named if n.startswith("row")] == printed.rows_001()[1]


def test_all_of_the_papers_models_are_in_configs() -> None:
    names = [path.stem for path in (CONFIGS / "model").glob("*.yaml")]
    assert set(printed.numbers_of([[name] for name in names])) >= set(printed.TWENTY)


# Simulated studies.


def test_coins_agree_with_the_papers_pattern_and_with_scipy() -> None:
    plan = tiny(coin_sets=100)
    found = simulated.coins(plan, [])
    by_id = {n.id: n for n in printed.numbers()}
    for key in (k for k in found.numbers if k in by_id):
        assert by_id[key].agrees(found.numbers[key]), key
    # The commonest whole row, and how often the printed one comes out, counted by hand.
    from bayes_at_n import scoring
    from bayes_at_n.scoring.studies import simulation

    coins = simulation.coin_models(plan.seed, 100)
    mu, sigma = scoring.bayes(simulation.toss(coins, 80, plan.seed))
    rows = Counter(tuple(map(int, row)) for row in scoring.ranks_with_uncertainty(mu, sigma))
    row = tuple(int(by_id[f"coins.ci.LLM{i}"].value) for i in range(1, 12))
    assert rows.most_common(1)[0][0] == row
    assert found.numbers["coins.ci.LLM1.other"] == rows[row] / 100
    # Panel (a) at N = 5, Bayes@N, from tosses made anew: scipy's tau_b with the true means.
    coins = simulation.coin_models(plan.seed, 1)[0]
    truth = np.round(coins.mean(axis=1), 4)
    taus = [
        kendalltau(matrix[:, :, :8].sum(axis=(1, 2)), truth).statistic
        for matrix in simulation.tosses(coins, 80, plan.matrices, plan.seed)
    ]
    [row] = [r for r in found.tables["fig2"].rows if r["estimator"] == "Bayes@N"]
    assert row["a8"] == pytest.approx(np.mean(taus), abs=1e-12)


def test_separation_lies_where_the_paper_and_a_normal_approximation_put_it() -> None:
    found = simulated.separation(tiny(separation_sets=10, separation_replicates=500), []).numbers
    assert 0.79 <= found["separation.p.80.low"] <= found["separation.p.80"] <= 0.86
    assert found["separation.z.80"] == pytest.approx(1.14, abs=0.06)
    # Mean |z| of a normal with the drift that the printed means give, and 3,600 coins tossed.
    from bayes_at_n.scoring.studies import simulation

    coins = simulation.coin_models(2025, 10)
    a, b = coins[:, 9], coins[:, 8]
    sigma = np.sqrt(((a * (1 - a)).sum(axis=1) + (b * (1 - b)).sum(axis=1)) / 80) / 30
    drift = (0.6213 - 0.608) / sigma
    expected = np.mean(
        np.sqrt(2 / np.pi) * np.exp(-(drift**2) / 2) + drift * (1 - 2 * norm.cdf(-drift))
    )
    assert found["separation.z.80"] == pytest.approx(expected, abs=0.04)
    for z in (1.645, 1.96):
        low, mean, high = (found[f"separation.n.{z}{end}"] for end in (".low", "", ".high"))
        assert low < mean < high
    assert found["separation.n.1.645"] < found["separation.n.1.96"]


def test_priors_meet_the_anchors() -> None:
    found = simulated.priors(tiny(prior_replicates=3000), [])
    by_id = {n.id: n for n in printed.numbers()}
    for key in (k for k in found.numbers if k in by_id):
        assert by_id[key].agrees(found.numbers[key]), key
    shares = [row["share"] for row in found.tables["fig2a_001"].rows]
    assert sum(shares) == pytest.approx(1)
    assert shares[-1] == pytest.approx(1 - found.numbers["priors.changed"], abs=0.02)


# Studies of runs.


def test_tau_and_convergence_agree_with_a_plain_loop() -> None:
    cohort, plan = made(), tiny()
    curve = orders.tau(plan, [cohort]).tables["fig4_sums_3_columns"]
    table = orders.convergence(plan, [cohort]).tables["fig1_sums_3"]
    data = np.asarray(cohort.matrix().data)
    gold = data.sum(axis=(1, 2))
    from bayes_at_n.scoring.studies import bootstrap

    index = bootstrap.draw(plan.seed, 0, plan.convergence_replicates, 12, 1)[..., 0]
    taus, points = [], []
    for r, drawn in enumerate(index):
        totals = data[..., drawn].sum(axis=1).cumsum(axis=-1)  # (models, N)
        if r < plan.tau_replicates:
            taus.append(kendalltau(totals[:, 3], gold).statistic)
        same = [
            (np.sign(totals[:, None, n] - totals[:, n]) == np.sign(gold[:, None] - gold)).all()
            for n in range(12)
        ]
        points.append(12 - [*same[::-1], False].index(False) + 1)
    bayes = {row["resample"]: row for row in table.rows if row["estimator"] == "Bayes@N"}["columns"]
    settled = [n for n in points if n <= 12]
    assert bayes["mean"] == pytest.approx(np.mean(settled))
    assert bayes["failed"] == pytest.approx(1 - len(settled) / len(points))
    assert bayes["largest"] == max(settled)
    assert curve.rows[0]["n4"] == pytest.approx(np.nanmean(taus))


def test_ranks_are_the_papers_rule_and_name_its_rows() -> None:
    cohorts = [the_papers("aime25"), the_papers("aime24"), made(dataset="other")]
    found = orders.ranks(tiny(), cohorts)
    assert set(found.tables) == {"table2_000", "table2_001", "table2_3_models"}
    scores = np.asarray(cohorts[0].matrix().data).mean(axis=(1, 2))
    # Eleven rows are models; the other nine rows go to the other models in AIME'25's order.
    other = np.asarray(cohorts[1].matrix().data).mean(axis=(1, 2))
    named, rows = printed.rows_001()
    for i, name in enumerate(cohorts[0].names):
        if name in named.values():
            assert found.numbers[f"ranks.001.{name}.aime25.plain"] == 1 + (scores > scores[i]).sum()
            assert found.numbers[f"ranks.001.{name}.aime24.plain"] == 1 + (other > other[i]).sum()
    rest = [i for i, name in enumerate(cohorts[0].names) if name not in named.values()]
    first = min(rest, key=lambda i: (-scores[i], i))
    assert found.numbers[f"ranks.001.{rows[0]}.aime24.plain"] == 1 + (other > other[first]).sum()
    forced = {n.id for n in printed.numbers() if n.by_construction}
    assert forced == {f"ranks.001.{row}.aime25.plain" for row in rows} and len(rows) == 9
    # gpt-oss-high and -medium: Table 6 numbers 7 and 9 are positions 13 and 11 here.
    data = np.asarray(cohorts[0].matrix().data)
    c = data.sum(axis=2)
    variance = ((c + 1) * (13 - c) / (14**2 * 15)).sum(axis=1) / 100
    mu = ((c + 1) / 14).mean(axis=1)
    z = abs(mu[13] - mu[11]) / np.sqrt(variance[13] + variance[11])
    assert found.numbers["ranks.z.aime25"] == pytest.approx(z, rel=1e-9)


def test_the_90_subsets_are_used_for_the_papers_models_and_drawn_for_others() -> None:
    cohort = the_papers("aime24")
    found = orders.convergence(tiny(), [cohort])
    assert {"table8", "table9", "table10"} <= set(found.tables)
    assert {"fig1_aime24_20", "fig1_aime24_11", "fig6_aime24"} <= set(found.figures)
    row = found.tables["table8"].rows[0]
    assert row["models"] == "OpenThinker3, Phi-4-plus, OR1-Distill, NVIDIA-Nemotron, Qwen3-4B"
    from bayes_at_n.scoring.studies import convergence

    models = [cohort.names.index(name) for name in row["models"].split(", ")]
    [alone] = convergence.convergence_at(
        np.asarray(cohort.matrix().data)[models], [studies.BAYES], 50, seed=2025
    )
    assert (row["aime24_mean"], row["aime24_failed"]) == (alone.mean, alone.share_failed)
    assert found.numbers.get("subset.5.1.aime24.other") == alone.mean
    capped = np.repeat(np.arange(1, 13), alone.counts).sum() + 12 * alone.failed
    assert alone.failed and row["aime24_capped"] == pytest.approx(capped / 50)
    assert found.numbers["subset.5.1.aime24"] == row["aime24_capped"]
    few = orders.convergence(tiny(), [made(4)])
    assert {"subsets2_sums", "subsets3_sums"} <= set(few.tables)
    assert any("twenty" in note for note in few.notes)
    of_all = scoring.avg(np.asarray(made(4).matrix().data))
    alike = [group for group in scoring.indistinguishable_groups(*of_all) if len(group) > 1]
    [said] = [n for n in few.tables["fig1_sums_4"].notes if "not where it is settled" in n]
    named = [", ".join(made(4).names[i] for i in group) for group in alike]
    assert said.endswith(f": {'; '.join(named) or 'none'}")


def test_the_papers_twenty_are_ranked_apart_from_others() -> None:
    known, more = the_papers("aime24"), made(2, dataset="aime24")
    data = np.concatenate([more.matrix().data, known.matrix().data])
    both = from_arrays("aime24", [*more.names, *known.names], known.question_ids, data)
    plan = tiny(convergence_replicates=50, subset_replicates=5)
    for name in ("ranks", "tau", "convergence"):
        alone, among = (STUDIES[name].make(plan, [cohort]) for cohort in (known, both))
        assert alone.numbers == pytest.approx(among.numbers, nan_ok=True), name
        assert len(among.tables) > len(alone.tables)


def test_printed_means_of_000_are_held_against_rows_and_of_001_against_columns() -> None:
    cohort = the_papers("brumo25", trials=24)
    data = np.asarray(cohort.matrix().data)
    from bayes_at_n.scoring.studies import convergence

    # Two easy questions and ranks far apart, so that some replicates converge and some do not.
    spread = (np.arange(24) < np.linspace(2, 22, 20)[:, None, None]).repeat(10, axis=1)
    data = np.where(np.arange(10)[None, :, None] < 9, spread, data).astype(int)
    cohort = from_arrays("brumo25", cohort.names, cohort.question_ids, data)
    found = orders.convergence(tiny(), [cohort]).numbers
    eleven = [cohort.names.index(printed.short_names()[n]) for n in printed.ELEVEN]
    cases: list[tuple[str, list[int], convergence.Resample]] = [
        ("000", eleven, "rows"),
        ("001", list(range(20)), "columns"),
    ]
    for version, models, scheme in cases:
        [bayes] = convergence.convergence_at(
            data[models], [studies.BAYES], 200, scheme, tiny().seed
        )
        start = f"convergence.{version}.brumo25"
        assert found[f"{start}.bayes"] == pytest.approx(bayes.mean or np.nan, nan_ok=True)
        assert found[f"{start}.bayes.other"] == pytest.approx(bayes.capped_mean)
        assert found[f"{start}.fails"] == (bayes.failed > 0)
    [other] = convergence.convergence_at(data[eleven], [studies.BAYES], 200, seed=tiny().seed)
    assert found["convergence.000.brumo25.bayes.other"] != other.capped_mean
    assert np.isfinite(found["convergence.000.brumo25.bayes"])


def test_where_no_replicate_converges_the_number_is_nan_not_missing() -> None:
    close = (np.random.default_rng(3).random((11, 10, 12)) < 0.5).astype(int)
    names = [printed.short_names()[n] for n in printed.ELEVEN]
    cohort = from_arrays("hmmt25", names, [f"q{i}" for i in range(10)], close)
    found = orders.convergence(tiny(convergence_replicates=20), [cohort]).numbers
    assert np.isnan(found["convergence.000.hmmt25.bayes"])
    assert np.isnan(found["convergence.000.hmmt25.worst"])
    assert found["convergence.000.hmmt25.bayes.other"] == 12
    rows = {row["id"]: row for row in index.comparison(found).rows}
    row = rows["convergence.000.hmmt25.bayes"]
    assert (row["ours"], row["other"], row["finding"]) == ("none", "12", "never converged")
    assert rows["convergence.000.brumo25.bayes"]["finding"] == "no records"


def test_a_printed_number_outside_our_spread_does_not_plainly_agree() -> None:
    numbers = {"separation.n.1.645": 217.0, "separation.n.1.645.low": 206.0}
    numbers |= {"separation.n.1.645.high": 227.0, "coins.gold.LLM1": 9}
    rows = {row["id"]: row["finding"] for row in index.comparison(numbers, ["tau"]).rows}
    assert rows["separation.n.1.645"] == "outside spread"
    assert rows["coins.gold.LLM1"] == "differs"
    assert rows["tau.001.aime25.n80"] == "not made"
    assert rows["cost.hours.aime24"] == "no records"


def test_gaps_are_left_out_and_said_and_too_little_is_refused() -> None:
    whole = made()
    outcomes = np.asarray(whole.matrix().data).astype(int)
    outcomes[1, 4, 9:] = -1
    gaps = from_arrays("gaps", whole.names, whole.question_ids, outcomes)
    data, notes = studies.complete(gaps)
    assert data.shape == (3, 10, 9) and "9 of 12 trials" in notes[0]
    one = from_arrays("one", ["a"], ["q"], [[[1, 0, 1]]])
    short = from_arrays("short", ["a", "b"], ["q"], [[[1]], [[0]]])
    for name in ("tau", "convergence"):
        with pytest.raises(UserError, match=r"one: holds one model.*short: 1 of 1 trials are"):
            STUDIES[name].make(tiny(), [one, short])
    kept = orders.tau(tiny(), [one, gaps])
    assert any(note.startswith("left out: one: ") for note in kept.notes)
    with pytest.raises(UserError, match="two or more"):
        orders.ranks(tiny(), [one])
    for name, said in (("cost", "no run holds attempts"), ("rubrics", "no rubric can be made")):
        with pytest.raises(UserError, match=said):
            STUDIES[name].make(tiny(), [whole])


def test_estimators_that_need_more_trials_are_left_out() -> None:
    found = orders.tau(tiny(), [made(trials=3)]).tables["fig4_sums_3_columns"]
    labels = [row["estimator"] for row in found.rows]
    assert "Bayes@N" in labels and "Pass@2" in labels and "Pass@4" not in labels


@pytest.mark.parametrize(("gap", "settled", "capped"), [(1, 37, 58), (16, 32, 47)])
def test_a_close_pair_cannot_have_the_printed_44(gap: int, settled: int, capped: int) -> None:
    """What docs/studies.md says of Tables 8 to 10: two models, 30 x 80 trials, `gap` apart."""
    from bayes_at_n.scoring.studies import convergence

    rng = np.random.default_rng(1)
    stack = (rng.random((2, 30, 80)) < rng.beta(2, 2, 30)[:, None]).astype(np.uint8)
    for _ in range(ahead := int(stack[0].sum(dtype=int) - stack[1].sum(dtype=int)) - gap, 0):
        stack[1].ravel()[rng.choice(np.flatnonzero(stack[1]))] = 0
    for _ in range(ahead):
        stack[0].ravel()[rng.choice(np.flatnonzero(stack[0]))] = 0
    assert stack[0].sum(dtype=int) - stack[1].sum(dtype=int) == gap
    [found] = convergence.convergence_at(stack, [studies.BAYES], 4000, seed=1)
    assert found.mean == pytest.approx(settled, abs=2)
    assert found.capped_mean == pytest.approx(capped, abs=3)
