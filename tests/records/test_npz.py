"""import of NPZ: arrays of outcomes and of categories; files that say more than they hold."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, outcome_words
from record_files import bring, folders, opened

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.rubrics.categories import categorize
from bayes_at_n.pipeline.score.stage import score


def test_npz_of_tasks(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2, (2, 5, 7)), rng.integers(0, 2, (2, 4, 7)).astype(float)
    a[0, 0, 0], a[0, 0, 6], b[1, 3, 0] = -1, -1, np.nan
    path = tmp_path / "m.npz"
    np.savez(path, aime25=a, hmmt25_feb=b)
    runs = bring(tmp_path, path, "model=qwen3-4b,x")
    assert folders(runs) == ["aime25/qwen3-4b", "aime25/x", "hmmt25/qwen3-4b", "hmmt25/x"]
    run = opened(runs / "aime25" / "qwen3-4b")
    outcomes = outcome_words(run)
    # The place of a cell is its trial, whatever is pending.
    assert outcomes[0, 0] == outcomes[0, 6] == "pending"
    assert ((outcomes == "correct") == (a[0] == 1)).all()
    assert signals.read(run).num_rows == 33
    score(run)
    for verb, why in ((grade, "no attempts to grade"), (categorize, "no finish_reason")):
        with pytest.raises(UserError, match=why):
            verb(run)
        assert (outcome_words(run) == outcomes).all()
    # The matrix that `score` writes comes back as it was.
    again = bring(tmp_path / "again", run.path / "matrix.npz", "dataset=aime25", "model=m")
    back = opened(again / "aime25" / "m")
    assert (outcome_words(back) == outcomes).all()
    assert [q["question_id"] for q in back.questions] == [q["question_id"] for q in run.questions]


def test_npz_of_categories_leaves_out_what_has_no_name(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, essays=np.array([[[0, 1, 2], [2, 5, 1]]]))
    run = opened(bring(tmp_path, path, "category_names=[a,b,c]", "model=m") / "essays" / "m")
    assert "1 damaged row skipped: essays[0, 1, 1] (" in capsys.readouterr().err
    rows = [["wrong", "wrong", "correct"], ["correct", "pending", "wrong"]]
    assert outcome_words(run).tolist() == rows
    bring(tmp_path / "d", path, "model=m")
    assert "essays: values up to 5 are categories, of which 5" in capsys.readouterr().err
    with pytest.raises(UserError, match="1 model and 2 different names"):
        bring(tmp_path, path, "model=a,b")


def test_hostile_npz(tmp_path: Path) -> None:
    """Nothing is unpickled, and no more is read than a file may unpack to."""
    path = tmp_path / "x.npz"
    np.savez(path, aime25=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match=r"x.npz: .*allow_pickle"):
        bring(tmp_path, path)
    np.savez(path, aime25=np.zeros((2, 3, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(UserError, match=r"x.npz: not a readable NPZ"):
        bring(tmp_path, path)
    data = bytearray(whole)
    data[data.index(b"PK\x01\x02") + 6] = 88  # a version of the format that nobody knows
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"x.npz: not a readable NPZ"):
        bring(tmp_path, path)
    for shape, limit in (((3, 1000, 10_000), "20000000"), ((50, 1000, 10_000), "500000128")):
        np.savez_compressed(path, aime25=np.zeros(shape, np.int8))
        with pytest.raises(UserError, match=rf"x.npz: .*{limit}"):
            bring(tmp_path, path)


@pytest.mark.parametrize(
    ("member", "kind", "shape", "why"),
    [
        ("R.npy", "|i1", (10**9, 1, 0), "R has 1000000000 models; at most 5000"),
        ("R.npy", "|i1", (6000, 1, 1), "expected 6000 bytes got 0"),
        ("models.npy", "<U100000000", (9,), "(Unable to allocate|EOF)"),
        ("models.npy", "<U1", (10**7, 0), "holds no array"),
        ("R.npy", "|O", (1, 1, 1), "allow_pickle"),
        ("R.txt", "|i1", (1, 1, 1), "R.txt is not an array"),
    ],
)
def test_headers_of_an_npz_are_not_believed(
    tmp_path: Path, member: str, kind: str, shape: tuple[int, ...], why: str
) -> None:
    path = tmp_path / "x.npz"
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w") as archive, archive.open(member, "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(UserError, match=f"{path.name}: .*{why}"):
        bring(tmp_path, path)
