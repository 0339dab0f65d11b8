"""The paper's numbers, rows and models: the data files agree with themselves and with the text."""

from collections.abc import Mapping

import numpy as np
import pytest
from scipy.stats import norm

from bayes_at_n.pipeline.config.compose import CONFIGS
from bayes_at_n.pipeline.paper import printed


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


def test_all_of_the_papers_models_are_in_configs() -> None:
    names = [path.stem for path in (CONFIGS / "model").glob("*.yaml")]
    assert set(printed.numbers_of([[name] for name in names])) >= set(printed.TWENTY)
