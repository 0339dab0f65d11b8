"""Studies of the order of models against plain loops and the paper's rules."""

import numpy as np
import pytest
from made_cohorts import made, the_papers, tiny

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import from_arrays
from bayes_at_n.pipeline.paper import ordering, reproduce, studies
from bayes_at_n.pipeline.paper.reproduce import STUDIES
from bayes_at_n.scoring.studies import convergence


def test_ranks_are_the_papers_rule_and_name_its_rows() -> None:
    cohorts = [the_papers("aime25"), the_papers("aime24"), made(dataset="other")]
    found = ordering.ranks(tiny(), cohorts)
    assert set(found.tables) == {"table2_000", "table2_001", "table2_3_models"}
    scores = np.asarray(cohorts[0].matrix().data).mean(axis=(1, 2))
    # Eleven rows are models; the other nine rows go to the other models in AIME'25's order.
    other = np.asarray(cohorts[1].matrix().data).mean(axis=(1, 2))
    named, rows = studies.rows_001()
    for i, name in enumerate(cohorts[0].names):
        if name in named.values():
            assert found.numbers[f"ranks.001.{name}.aime25.plain"] == 1 + (scores > scores[i]).sum()
            assert found.numbers[f"ranks.001.{name}.aime24.plain"] == 1 + (other > other[i]).sum()
    rest = [i for i, name in enumerate(cohorts[0].names) if name not in named.values()]
    first = min(rest, key=lambda i: (-scores[i], i))
    assert found.numbers[f"ranks.001.{rows[0]}.aime24.plain"] == 1 + (other > other[first]).sum()
    forced = {n.id for n in studies.numbers() if n.by_construction}
    assert forced == {f"ranks.001.{row}.aime25.plain" for row in rows} and len(rows) == 9
    # gpt-oss-high and -medium: Table 6 numbers 7 and 9 are positions 13 and 11 here.
    c = scoring.compare(*np.asarray(cohorts[0].matrix().data)[[13, 11]])
    assert found.numbers["ranks.z.aime25"] == pytest.approx(c.z, rel=1e-9)


def test_the_90_subsets_are_used_for_the_papers_models_and_drawn_for_others() -> None:
    cohort = the_papers("aime24")
    found = ordering.convergence(tiny(), [cohort])
    assert {"table8", "table9", "table10"} <= set(found.tables)
    assert {"fig1_aime24_20", "fig1_aime24_11", "fig6_aime24"} <= set(found.figures)
    row = found.tables["table8"].rows[0]
    assert row["models"] == "OpenThinker3, Phi-4-plus, OR1-Distill, NVIDIA-Nemotron, Qwen3-4B"

    models = [cohort.names.index(name) for name in row["models"].split(", ")]
    [alone] = convergence.convergence_at(
        np.asarray(cohort.matrix().data)[models], [studies.BAYES], 50, seed=2025
    )
    assert (row["aime24_mean"], row["aime24_failed"]) == (alone.mean, alone.share_failed)
    assert found.numbers.get("subset.5.1.aime24.other") == alone.mean
    capped = np.repeat(np.arange(1, 13), alone.counts).sum() + 12 * alone.failed
    assert alone.failed and row["aime24_capped"] == pytest.approx(capped / 50)
    assert found.numbers["subset.5.1.aime24"] == row["aime24_capped"]
    few = ordering.convergence(tiny(), [made(4)])
    assert {"subsets2_sums", "subsets3_sums"} <= set(few.tables)
    assert any("twenty" in note for note in few.notes)
    low, high = scoring.rank_ranges(*scoring.avg(np.asarray(made(4).matrix().data)))
    [message] = [n for n in few.tables["fig1_sums_4"].notes if "not where it is settled" in n]
    ranges = zip(made(4).names, low, high, strict=True)
    named = [f"{name} {a}–{b}" for name, a, b in ranges if a < b]
    assert message.endswith(f": {', '.join(named) or 'none'}")


def test_the_papers_twenty_are_ranked_apart_from_others() -> None:
    known, more = the_papers("aime24"), made(2, dataset="aime24")
    data = np.concatenate([more.matrix().data, known.matrix().data])
    both = from_arrays("aime24", [*more.names, *known.names], known.question_ids, data)
    plan = tiny(convergence_replicates=50, subset_replicates=5)
    for name in ("ranks", "tau", "convergence"):
        alone, among = (STUDIES[name].make(plan, [cohort]) for cohort in (known, both))
        assert alone.numbers == pytest.approx(among.numbers, nan_ok=True), name
        assert len(among.tables) > len(alone.tables)


def test_where_no_replicate_converges_the_number_is_nan_not_missing() -> None:
    close = (np.random.default_rng(3).random((11, 10, 12)) < 0.5).astype(int)
    names = [studies.short_names()[n] for n in studies.ELEVEN]
    cohort = from_arrays("hmmt25", names, [f"q{i}" for i in range(10)], close)
    found = ordering.convergence(tiny(convergence_replicates=20), [cohort]).numbers
    assert np.isnan(found["convergence.000.hmmt25.bayes"])
    assert np.isnan(found["convergence.000.hmmt25.worst"])
    assert found["convergence.000.hmmt25.bayes.other"] == 12
    rows = {row["id"]: row for row in reproduce.comparison(found).rows}
    row = rows["convergence.000.hmmt25.bayes"]
    assert (row["ours"], row["other"], row["finding"]) == ("none", "12", "never converged")
    assert rows["convergence.000.brumo25.bayes"]["finding"] == "no records"


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
        with pytest.raises(UserError, match=r"one: has one model.*short: 1 of 1 trials are"):
            STUDIES[name].make(tiny(), [one, short])
    kept = ordering.tau(tiny(), [one, gaps])
    assert any(note.startswith("left out: one: ") for note in kept.notes)
    with pytest.raises(UserError, match="two or more"):
        ordering.ranks(tiny(), [one])
    for name, message in (("cost", "no run has attempts"), ("rubrics", "no rubric can be")):
        with pytest.raises(UserError, match=message):
            STUDIES[name].make(tiny(), [whole])


def test_estimators_that_need_more_trials_are_left_out() -> None:
    found = ordering.tau(tiny(), [made(trials=3)]).tables["fig4_sums_3_columns"]
    labels = [row["estimator"] for row in found.rows]
    assert "Bayes@N" in labels and "Pass@2" in labels and "Pass@4" not in labels


@pytest.mark.parametrize(("gap", "settled", "capped"), [(1, 37, 58), (16, 32, 47)])
def test_a_close_pair_cannot_have_the_printed_44(gap: int, settled: int, capped: int) -> None:
    """What docs/studies.md says of Tables 8 to 10: two models, 30 x 80 trials, `gap` apart."""

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
