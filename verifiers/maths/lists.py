r"""Compare lists, sets, tuples and chains of equal values, given a test for two items."""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bayes_at_n.verifiers.maths.conventions import STRICT, Conventions
from bayes_at_n.verifiers.maths.labels import split_label
from bayes_at_n.verifiers.maths.latex import signs, split_list, split_top
from bayes_at_n.verifiers.maths.parser import read_expression
from bayes_at_n.verifiers.maths.relations import compare_relations

MAX_ITEMS = 30

Same = Callable[[str, str], bool | None]
Item = TypeVar("Item")


def compare_lists(
    gold: str, answer: str, same: Same, conventions: Conventions = STRICT
) -> bool | None:
    r"""Compare two cleaned lists, tuples, intervals or sets, given a test for two items.

    Bare lists (by convention) and sets have no order, and a plus-minus in them is written out. A
    bare list compared with a tuple must have its order; a set never equals a tuple. Other mixtures
    of brackets, and texts that are no lists, are None.

    >>> from bayes_at_n.verifiers import compare
    >>> compare_lists("1,2", r"\{2,1\}", compare), compare_lists("(1,2)", "2,1", compare)
    (True, False)
    """
    (kind, rows), (other, others) = table_of(gold), table_of(answer)
    if "ratio" in (kind, other):
        if kind != other or len(rows[0]) != len(others[0]):
            return False
        (first, *terms), (second, *fellows) = rows[0], others[0]
        crossed = (
            (f"({a})\\cdot({second})", f"({b})\\cdot({first})")
            for a, b in zip(terms, fellows, strict=True)
        )
        return all_of(itertools.starmap(same, crossed))
    if "cases" in (kind, other):
        if kind != other:
            return False

        def same_piece(a: list[str], b: list[str]) -> bool | None:  # its value and its condition
            return all_of((same(a[0], b[0]), a[1] == b[1] or compare_relations(a[1], b[1])))

        return compare_sets(rows, others, same_piece, repeated=True)
    cells, other_cells = [*itertools.chain(*rows)], [*itertools.chain(*others)]
    if kind and other:
        shapes = [[*map(len, table)] for table in (rows, others)]
        return shapes[0] == shapes[1] and all_of(map(same, cells, other_cells))
    if kind or other:  # a column is the tuple of its cells
        table, text = (rows, answer) if kind else (others, gold)
        around, items = split_list(text) or ("", [])
        if around != "()" or min(len(table), len(table[0])) > 1:
            return False if read_expression(text) else None
        sides = (cells, items) if kind else (items, other_cells)
        return len(sides[0]) == len(sides[1]) and all_of(map(same, *sides))
    gold_list, answer_list = expand_list(gold), expand_list(answer)
    if gold_list is None or answer_list is None:
        return None
    (gold_brackets, gold_items), (answer_brackets, answer_items) = gold_list, answer_list
    names = {split_label((split_list(side) or ("", [side]))[1][0])[0] for side in (gold, answer)}
    if len(names) > 1 and "" not in names:
        return False  # x=2, x=3 are not y=2, y=3
    if len(gold_items) > MAX_ITEMS or len(answer_items) > MAX_ITEMS:
        return None
    brackets = {gold_brackets, answer_brackets}
    if r"\dots" in [*gold_items, *answer_items]:
        dots = [[item == r"\dots" for item in items] for items in (gold_items, answer_items)]
        return all_of(map(same, gold_items, answer_items)) if dots[0] == dots[1] else None
    if brackets <= {"", "{}"} and (brackets != {""} or conventions.lists == "unordered"):
        if min(len(gold_items), len(answer_items)) < 2 and "" in brackets:
            return None
        # A double root counts twice; a solution in several unknowns is one however often written.
        roots = brackets != {"{}"} and not all(item[0] == "(" for item in gold_items)
        return compare_sets(gold_items, answer_items, same, repeated=roots)
    interval = len(brackets) > 1 and r"\infty" in gold + answer  # is no list of two
    if "{}" in brackets or len(gold_items) != len(answer_items) or interval:
        return False
    if len(brackets) > 1 and brackets != {"", "()"}:
        return None
    return all_of(map(same, gold_items, answer_items))


def all_of(equal: Iterable[bool | None]) -> bool | None:
    """Whether all of several comparisons hold; None where one that is left open decides."""
    found = list(equal)
    return False if False in found else None if None in found else True


_MATRIX = re.compile(r"(.*?)(?:\\cdot ?|\\times ?)?\\begin\{pmatrix\}(.*)\\end\{pmatrix\}")
_PIECES = re.compile(r"(?:\\\{)?\\begin\{(?:cases|array)\}(.*&.*)\\end\{(?:cases|array)\}")
_IF = re.compile(r"^(?:,|\\text\{,?(?:if|when)\} ?)")


def table_of(text: str) -> tuple[str, list[list[str]]]:
    r"""Read a cleaned matrix, function in cases or ratio of three terms or more as its rows.

    The kind is "matrix" (perhaps with a factor before it, which goes into the cells), "cases"
    (rows of value and condition), "ratio" (one row) or "" with no rows.

    >>> table_of(r"\frac{1}{2}\begin{pmatrix}1\\3\end{pmatrix}")
    ('matrix', [['\\frac{1}{2}\\cdot(1)'], ['\\frac{1}{2}\\cdot(3)']])
    >>> table_of(r"\begin{cases}x,&x>0\\-x,&\text{if}x\leq0\end{cases}"), table_of("3:4:5")
    (('cases', [['x', 'x>0'], ['-x', 'x\\leq0']]), ('ratio', [['3', '4', '5']]))
    """
    terms = split_top(text, ":") if text.count(":") > 1 else []
    if len(terms) > 2 and all(map(read_expression, terms)):
        return "ratio", [terms]
    pieces, matrix = _PIECES.fullmatch(text), _MATRIX.fullmatch(text)
    found = pieces[1] if pieces else matrix[2] if matrix else ""
    rows = [[cell.strip() for cell in row.split("&")] for row in found.split("\\\\")]
    if pieces and all(len(row) == 2 for row in rows):
        return "cases", [[v.rstrip(","), _IF.sub("", when).rstrip(",.")] for v, when in rows]
    if matrix is None or "\\begin" in found:
        return "", []
    factor = matrix[1]
    if factor not in ("", "-") and not read_expression(factor):
        return "", []
    times = factor if factor in ("", "-") else rf"{factor}\cdot"
    return "matrix", [[f"{times}({cell})" if times else cell for cell in row] for row in rows]


def expand_list(text: str) -> tuple[str, list[str]] | None:
    """The brackets and items of a cleaned list, a plus-minus written out; None: it is no list."""
    brackets, items = split_list(text) or ("", [text])
    if brackets == "()" and len(tuples := signs(text)) > 1:
        brackets, items = "", tuples
    named = [split_label(item) for item in items]
    if len({name for name, _ in named}) == 1:  # x=2, x=3
        brackets = "{}" if named[0][0] and len(items) > 1 else brackets
        items = [value for _, value in named]
    if brackets in ("", "{}"):
        items = [sign for item in items for sign in signs(item)]
    return (brackets, items) if len(items) > 1 or brackets else None


def compare_sets(
    gold_items: Sequence[Item],
    answer_items: Sequence[Item],
    same: Callable[[Item, Item], bool | None],
    *,
    repeated: bool = False,
) -> bool | None:
    """Compare two collections without order, given a test for two items.

    An item that is `repeated` counts as often as it occurs.

    >>> from bayes_at_n.verifiers import compare
    >>> compare_sets(["1", "2"], ["2", "1", "1"], compare)
    True
    """
    table = [[same(g, a) for a in answer_items] for g in gold_items]
    columns = [list(column) for column in zip(*table, strict=True)]
    if any(all(cell is False for cell in line) for line in table + columns):
        return False  # an item that has no partner on the other side
    if repeated and len(gold_items) != len(answer_items):
        return False
    if not all(True in line for line in table + columns):
        return None
    pairs = ((row, column) for row in table for i, column in enumerate(columns) if row[i])
    return not repeated or all(row.count(True) == column.count(True) for row, column in pairs)
