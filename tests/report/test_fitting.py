"""Texts on terminals: where lines are broken, and what is cut."""

from __future__ import annotations

import pytest

from jobrun.report.fitting import broken, cut, few, labelled, text_width

VALUES = "loss/first 0.1 (epoch 1)  accuracy -1.23e-300 (epoch 12)  f1 2 (epoch 3)"


def test_labelled_texts_are_broken_at_spaces() -> None:
    facts = [("job", "pi"), ("vars", ""), ("uses", "numpy 2.4.6, scipy-openblas 0.3.31")]
    whole = ["  job  pi", "  uses numpy 2.4.6, scipy-openblas 0.3.31"]
    assert labelled(facts, 4) == labelled(facts, 4, width=80) == whole
    assert labelled(facts, 4, width=30) == [
        "  job  pi",
        "  uses numpy 2.4.6,",
        "       scipy-openblas 0.3.31",
    ]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 10, []),
        ("one two three", None, ["one two three"]),
        ("one two three", 8, ["one two", "three"]),
        ("a a_word_that_is_longer b", 8, ["a", "a_word_that_is_longer", "b"]),
        ("python 3.11.7, simd AVX512", 24, ["python 3.11.7,", "simd AVX512"]),
        ("a cause, which has so many words that it is no item of a list", 25,
         ["a cause, which has so", "many words that it is no", "item of a list"]),
        ("2 kept: 5, 6 of the epochs 25 to 28 (238 kB on disk); best: 6 (epoch 28)", 56,
         ["2 kept: 5, 6 of the epochs 25 to 28 (238 kB on disk);", "best: 6 (epoch 28)"]),
        (VALUES, 52, [VALUES[:24], VALUES[26:]]),
        (VALUES, 28, ["loss/first 0.1 (epoch 1)", "accuracy -1.23e-300", "(epoch 12)",
                      "f1 2 (epoch 3)"]),
        ("これは長いメモです", 9, ["これは長", "いメモで", "す"]),
    ],
)  # fmt: skip
def test_lines_are_broken_between_values_and_words(
    text: str, width: int | None, lines: list[str]
) -> None:
    assert broken(text, width) == lines


def test_later_lines_are_indented() -> None:
    assert broken("one two three four", 9, "  ") == ["one two", "  three", "  four"]


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 7, "abc…hij"),
        ("abcdefghij", 6, "ab…hij"),
        ("数字数字数字", 7, "数…数字"),
    ],
)
def test_what_is_cut_keeps_its_beginning_and_its_end(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert text_width(shown) <= width


def test_how_many_items_have_no_room_is_said() -> None:
    items = ["loss 0.1", "acc 0.25", "f1 2"]
    assert few(items, None) == few(items, 24) == ("loss 0.1  acc 0.25  f1 2", 0)
    assert few(items, 23) == ("loss 0.1  acc 0.25  +1", 1)
    assert few(items, 20) == ("loss 0.1  +2", 2)
    assert few(items, 0) == ("+3", 3)
    assert few([], 0) == ("", 0)


@pytest.mark.parametrize(("text", "width"), [("ab", 2), ("é", 1), ("e\u0301", 1), ("数", 2)])
def test_the_width_of_texts(text: str, width: int) -> None:
    assert text_width(text) == width
