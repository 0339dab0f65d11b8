"""import of evalscope's reviews and predictions, in two layouts."""

from pathlib import Path
from typing import Any

import pytest
from helpers import Capsys
from record_files import bring, by_key, csv_of, opened, write_lines

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.records.formats import locate
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES

NAME = "my_sums_Level 1.jsonl"


def review(layout: str, index: int, right: bool) -> dict[str, Any]:
    """A row of evalscope's reviews: of 1.14 or 1.0, of two repeats a question."""
    answer, value = str(index // 2), float(right)
    score = {"value": {"other": 0.5, "acc": value}, "extracted_prediction": answer}
    score |= {"prediction": f"It is \\boxed{{{answer}}}.", "main_score_name": "acc"}
    sampled = {"score": score, "sample_id": index, "group_id": index // 2}
    about = {"index": index, "sample_score": sampled}
    if layout == "1.0":
        return about | {"input": f"What is {index // 2}?", "target": "1"}
    sampled["generation_index"] = index % 2
    sent = {"role": "user", "content": f"What is {index // 2}?"}
    return about | {"target": ["1"], "messages": [sent, {"role": "assistant", "content": "It"}]}


def prediction(index: int) -> dict[str, Any]:
    content = [{"type": "reasoning", "reasoning": f"{index}"}, {"type": "text", "text": "2."}]
    choice = {"message": {"role": "assistant", "content": content}, "stop_reason": "max_tokens"}
    usage = {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}
    return {"index": index, "model": "m", "model_output": {"choices": [choice], "usage": usage}}


@pytest.mark.parametrize("layout", ["1.14", "1.0"])
def test_reviews_of_evalscope(layout: str, tmp_path: Path, capsys: Capsys) -> None:
    rows = [review(layout, index, index % 3 == 0) for index in (3, 0, 2, 1)]
    predicted = [prediction(index) for index in (1, 3, 0)]
    for date in ("20261001_100000", "20261101_100000"):
        made = tmp_path / "outputs" / date
        write_lines(made / "reports" / "served" / "my_sums.json", [{}])
        write_lines(made / "reviews" / "served" / NAME, [*rows, {"index": 9}])
        write_lines(made / "predictions" / "served" / NAME, predicted)
    runs = bring(tmp_path, tmp_path / "outputs", "dataset=sums")
    err = capsys.readouterr().err
    assert "read as evalscope" in err and "is older than" in err
    assert f"skipped: 20261101_100000/reviews/served/{NAME}, line 5" in err
    run = opened(runs / "sums" / "served")
    grades = {key: g["outcome"] for key, g in by_key(run, "grades", GRADES).items()}
    attempts = by_key(run, "attempts", ATTEMPTS)
    one = attempts["Level 1-0", 0]
    numbers = [one[key] for key in ("finish_reason", "prompt_tokens", "completion_tokens")]
    assert numbers == ["length", 3, 9]
    assert [q["gold"] for q in run.questions] == ["1"] * len(run.questions)
    assert "values of other left out: acc counts" in err
    alone = made / "reviews" / "served" / NAME
    source = compose.load_as(RecordsConfig, [f"source={alone}"])
    before = locate(source).fingerprint
    write_lines(made / "predictions" / "served" / NAME, predicted[1:])
    assert locate(source).fingerprint != before
    swapped = layout == "1.0"  # trials are in the order of the rows, of which 3 came first
    assert grades == {
        ("Level 1-0", 0): "correct",
        ("Level 1-0", 1): "wrong",
        ("Level 1-1", 0): "correct" if swapped else "wrong",
        ("Level 1-1", 1): "wrong" if swapped else "correct",
    }
    assert one["text"] == "0</think>2."
    assert attempts["Level 1-1", int(swapped)]["text"] == "It is \\boxed{1}."  # no prediction
    assert run.questions[0]["prompt"].startswith("What is")


def test_predictions_without_reviews_and_mixed_folders(tmp_path: Path, capsys: Capsys) -> None:
    write_lines(tmp_path / "predictions" / "m" / "sums_default.jsonl", [prediction(0)])
    with pytest.raises(UserError, match="predictions only"):
        bring(tmp_path, tmp_path / "predictions")
    csv_of(tmp_path / "predictions" / "x.csv", "question_id,correct", "0,1")
    with pytest.raises(UserError, match="predictions only"):
        bring(tmp_path, tmp_path / "predictions", "model=m", "dataset=d")
    err = capsys.readouterr().err
    assert "also holds 1 of csv, not read" in err
