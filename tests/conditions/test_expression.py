"""Expressions of ``when:``: what is allowed, what they are worth, and where they are wrong."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.conditions.expression import Expression, ExpressionError, MissingName
from jobrun.errors import TaskError

SCALARS = {
    "loss": 0.25,
    "epoch": 3,
    "nan": math.nan,
    "inf": math.inf,
    "zero": 0,
    "done": True,
    "trainer_0:loss": 0.5,
    "model/b": 2.0,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("loss < 0.3", True),
        ("loss < 0.1 and epoch >= 3", False),
        ("loss < 0.1 or epoch >= 3", True),
        ("not loss < 0.1", True),
        ("0.1 < loss <= 0.25 < 1", True),
        ("epoch == 3 and epoch != 4", True),
        ("-loss + 2 * epoch", 5.75),
        ("epoch // 2 + epoch % 2", 2),
        ("epoch / 2", 1.5),
        ("(epoch + 1) * 2", 8),
        ("abs(-3)", 3),
        ("min(loss, 0.1, epoch)", 0.1),
        ("max(loss, 0.1)", 0.25),
        ("isnan(nan) and not isnan(loss)", True),
        ("isfinite(loss) and not isfinite(inf)", True),
        ('blob("trainer_0:loss") * 2', 1.0),
        ('blob("model/b") > 1', True),
        ("True and done", True),
        ("1 / zero", math.inf),
        ("-1 / zero", -math.inf),
        ("nan < 1 or nan > 1 or nan == nan", False),
        ("nan != nan", True),
        ("  loss < 1  ", True),
        ("1_000", 1000),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert Expression.parse(text).value(SCALARS) == value


@pytest.mark.parametrize("text", ["zero / zero", "epoch % zero", "epoch // zero", "nan + 1"])
def test_values_that_are_no_number(text: str) -> None:
    assert math.isnan(Expression.parse(text).value(SCALARS))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epoch < 3 and missing > 1", False),
        ("missing > 1 and epoch < 3", False),
        ("epoch > 2 or missing > 1", True),
        ("missing > 1 or epoch > 2", True),
        ("not (missing > 1 and epoch < 3)", True),
        ("missing < epoch < 2", False),
        ("epoch > 2 and missing > 1", None),
        ("missing > 1 and epoch > 2", None),
        ("missing > 1 or epoch < 2", None),
        ("missing < epoch < 9", None),
        ("missing + epoch > 0", None),
    ],
)
def test_a_missing_name_matters_only_where_the_others_do_not_decide(
    text: str, expected: bool | None
) -> None:
    """In any order: ``loss < 0.1 or epoch >= 100`` did not stop a run in an epoch without loss."""
    if expected is None:
        with pytest.raises(MissingName):
            Expression.parse(text).value(SCALARS)
    else:
        assert Expression.parse(text).value(SCALARS) is expected


@pytest.mark.parametrize("text", ["min(nan, 0.1)", "min(0.1, nan)", "max(0.1, nan, 3)"])
def test_the_extreme_of_nan_is_nan_wherever_it_stands(text: str) -> None:
    assert math.isnan(Expression.parse(text).value(SCALARS))


def test_a_number_beyond_all_floats_keeps_its_sign() -> None:
    assert Expression.parse("huge / 2").value({"huge": -(10**400)}) == -math.inf
    assert Expression.parse("1.5 * huge").value({"huge": 10**400}) == math.inf


def test_names_come_in_order_of_appearance() -> None:
    text = 'b < a + b and isnan(c) or blob("x:y") > epoch'
    assert Expression.parse(text).names == ("b", "a", "c", "x:y", "epoch")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("loss <", 1, "not an expression"),
        ("loss = 1", 6, "write '=='"),
        ("trainer_0:loss < 1", 10, 'a blob of a node is blob("trainer_0:loss")'),
        ("a && b", 4, "write 'and'"),
        ("", 1, "not an expression"),
        ("a < b()", 5, "unknown function 'b'"),
        ("  a < b()", 7, "unknown function 'b'"),
        ("a.b > 1", 1, "only numbers"),
        ("1 < a[0]", 5, "only numbers"),
        ("2 ** 8", 1, "only numbers"),
        ("a if b else c", 1, "only numbers"),
        ("lambda: 1", 1, "only numbers"),
        ("[a for a in b]", 1, "only numbers"),
        ("a < 'text'", 5, "'text' is not a number"),
        ("1j", 1, "not a number"),
        ("abs", 1, "'abs' is a function"),
        ("abs(1, 2)", 1, "abs() takes one"),
        ("min(1)", 1, "min() takes two"),
        ("blob(x)", 1, "blob() takes the name"),
        ("max(a, key=b)", 1, "only numbers"),
        ("__import__('os')", 1, "unknown function '__import__'"),
        ("x" * 3000, 1, "too long"),
        ("+".join(["a"] * 400), 1, "too long"),
        ("(" * 500, None, "not an expression"),
        ("not " * 450 + "a", 1, "too long"),
        ("a\0b", 1, "not an expression"),
        ("a; b", None, "not an expression"),
    ],
)
def test_what_is_not_allowed(text: str, column: int | None, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text)
    assert message in str(caught.value)
    if column is not None:
        assert caught.value.column == column


@pytest.mark.parametrize(
    ("value", "part"), [("text", "a is 'text'"), (None, "a is None"), ([1], "a is [1]")]
)
def test_a_value_that_is_no_number_is_named(value: Any, part: str) -> None:
    with pytest.raises(TaskError) as caught:
        Expression.parse("b < 1 and a + 1 < 3").value({"a": value, "b": 0})
    assert "'b < 1 and a + 1 < 3' cannot be computed" in caught.value.message
    assert part in caught.value.message


def test_no_warning_is_given_for_odd_text(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(ExpressionError):
        Expression.parse("1if x else 2")
    assert Expression.parse("1or 0").value({})
    assert not recwarn.list


_numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3)) | st.integers(-1000, 1000)
_Meant = tuple[str, Callable[[float, float], Any]]
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "and": lambda x, y: bool(x and y),
    "or": lambda x, y: bool(x or y),
}


def _number(value: float) -> _Meant:
    return f"({value})", lambda a, b: value


def _pair(parts: tuple[_Meant, str, _Meant]) -> _Meant:
    (left, f), name, (right, g) = parts
    return f"({left} {name} {right})", lambda a, b: _PYTHON[name](f(a, b), g(a, b))


_names: list[_Meant] = [("a", lambda a, b: a), ("b", lambda a, b: b)]
_meant = st.recursive(
    st.sampled_from(_names) | _numbers.map(_number),
    lambda inner: st.tuples(inner, st.sampled_from(list(_PYTHON)), inner).map(_pair),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(_meant, _numbers, _numbers)
def test_the_value_is_pythons(meant: _Meant, a: float, b: float) -> None:
    text, value = meant
    assert Expression.parse(text).value({"a": a, "b": b}) == value(a, b)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        Expression.parse(text)
    except ExpressionError as error:
        assert error.column >= 1  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("3 > 2", ""),
        ("a < 1", "a"),
        ("a < 1 and b < 1", "a b"),
        ("a < 1 or b < 1", ""),
        ("epoch > 9 or a < 1", ""),
        ("(a < 1 and b < 1) or c < 1", ""),
        ("(a < 1 or b < 1) and c < 1", "c"),
        ("not (a < 1 or b < 1)", "a b"),
        ("not (a < 1 and b < 1)", ""),
        ("not not (a < 1 or b < 1)", ""),
        ("(a > 1 and b > 1) or (a > 2 and c > 2)", "a"),
        ("a < b < c", "a b c"),
        ("not a < b < c", "b"),
        ("(a or b) < 1", ""),
        ("-a + abs(b) * max(c, 2) > 0", "a b c"),
        ('blob("n:a") < 1', "n:a"),
    ],
)
def test_the_names_without_which_it_cannot_be_true(text: str, needs: str) -> None:
    expression = Expression.parse(text)
    assert [n for n in sorted(expression.names) if expression.blocked({n})] == needs.split()


@pytest.mark.parametrize("text", ["a < 1 or b < 1", "not (a < 1 and b < 1)", "(a or b) < 1"])
def test_names_may_be_needed_together(text: str) -> None:
    assert Expression.parse(text).blocked({"a", "b"})
    assert not Expression.parse(text).blocked({"a", "c"})


conditions = st.recursive(
    st.builds("{} {} 0".format, st.sampled_from("abc"), st.sampled_from(["<", ">", "=="])),
    lambda parts: (
        st.builds("not ({})".format, parts)
        | st.builds("({} {} {})".format, parts, st.sampled_from(["and", "or"]), parts)
        | st.builds("({} < ({}) < 1)".format, st.sampled_from("abc"), parts)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(conditions, st.sets(st.sampled_from("abc")), st.integers(0, 3**3 - 1))
def test_where_it_is_blocked_no_values_of_the_others_make_it_true(
    text: str, without: set[str], values: int
) -> None:
    expression = Expression.parse(text)
    scalars = {n: values // 3**i % 3 - 1 for i, n in enumerate("abc") if n not in without}
    try:
        true = bool(expression.value(scalars))
    except MissingName:
        true = False
    assert not (true and expression.blocked(without))
