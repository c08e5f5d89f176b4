"""The scalars of YAML 1.2's core schema, and durations.

Unlike in YAML 1.1, ``1e-4`` is a float, and ``no``, ``on`` and ``12:30`` are texts.  ``012`` is
refused, since the two versions read it as different numbers.
"""

from __future__ import annotations

import math
import re

__all__ = ["Scalar", "ScalarError", "scalar", "show", "typed"]

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf")},
    **{sign + ".INF": float(sign + "inf") for sign in ("", "+", "-")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_MOST_DIGITS = 1000
_SHOWN = 40


class ScalarError(ValueError):
    """A scalar that is refused; ``hint`` says what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar; raises ScalarError where its meaning is in doubt."""
    first = text[:1]
    if first not in "+-.0123456789":
        return _WORDS.get(text, text)
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    if _BASED.fullmatch(text):
        _refuse_long(text[2:])
        return int(text, 0)
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    _refuse_long(digits)
    if len(digits) > 1 and digits[0] == "0":
        plain = digits.lstrip("0") or "0"
        octal = f", 0o{plain} if it is octal" if not set(plain) & set("89") else ""
        raise ScalarError(
            f"{text!r} is one number in YAML 1.1 and another in YAML 1.2",
            f"write {plain}{octal}, or '{text}' in quotes if it is a string",
        )
    return int(text)


def _refuse_long(digits: str) -> None:
    if len(digits) > _MOST_DIGITS:
        hint = f"numbers have at most {_MOST_DIGITS} digits; quote it if it is a string"
        raise ScalarError(f"a number of {len(digits)} digits", hint)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ScalarError(f"{text[:_SHOWN]} is more than a float can hold", "infinity is .inf")
    return value


def typed(value: Scalar, was: Scalar) -> Scalar:
    """Return ``value`` with the type of ``was``, the value of a var, which keeps its type.

    A whole number is taken for a float too, and ``3.0`` for a whole one; ``null`` has no type.
    Raises ScalarError, whose message says what ``was`` is.
    """
    if was is None or type(value) is type(was):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(was, float) and isinstance(value, int) and number:
        try:
            return float(value)
        except OverflowError:
            raise ScalarError("a float", "this is more than a float can hold") from None
    whole = isinstance(was, int) and not isinstance(was, bool)
    if whole and isinstance(value, float) and value.is_integer():
        return int(value)
    kind = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    hint = f"write {was}.0 in the spec if any number is meant" if whole and number else ""
    raise ScalarError(kind[type(was)], hint or ("quote it" if isinstance(was, str) else ""))


def show(value: object) -> str:
    """Return a value for a message, as YAML has it and short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
    return repr(value)[:_SHOWN]
