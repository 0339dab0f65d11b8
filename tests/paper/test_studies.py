"""The paper's numbers, rows and models: the data files agree with themselves and with the text."""

from bayes_at_n.pipeline.config.compose import CONFIGS
from bayes_at_n.pipeline.paper import studies


def test_the_subsets_are_those_of_tables_8_to_10() -> None:
    found = studies.subsets()
    sizes = [len(subset.models) for subset in found]
    assert [sizes.count(size) for size in (5, 10, 15)] == [50, 20, 20]
    assert all(sorted(set(s.models)) == list(s.models) for s in found)
    assert all(1 <= n <= 20 for s in found for n in s.models)
    assert all(1 <= v <= 80 for s in found for v in s.printed.values())
    # Spot checks against the printed page.
    assert found[0].models == (4, 13, 14, 18, 19)
    assert found[0].printed == {"aime24": 13.5, "aime25": 69.0, "hmmt25": 11.9, "brumo25": 8.8}
    assert found[-1].printed == {"aime24": 73.1, "aime25": 78.7, "hmmt25": 72.7, "brumo25": 53.2}


def test_all_of_the_papers_models_are_in_configs() -> None:
    names = [path.stem for path in (CONFIGS / "model").glob("*.yaml")]
    assert set(studies.numbers_of([[name] for name in names])) >= set(studies.TWENTY)
