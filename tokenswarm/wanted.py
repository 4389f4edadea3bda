"""Kinds of scalar a user may write, each with one phrase that says everything that is wanted.

A value of the wrong type, out of its limits, NaN or infinite gets the same phrase, so that one line of an error is
enough to put it right. The kinds are annotations of pydantic fields and appear as limits in the JSON Schema.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "secs": 1, "seconds": 1, "m": 60, "min": 60, "minutes": 60, "h": 3600}
_NUMBER_WITH_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


class Model(BaseModel):
    """Immutable, and every unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def mistake(text: str, *at: str | int) -> PydanticCustomError:
    """An error whose line reads ``… value X: <text>``; ``at`` is the way from the validated value to the culprit."""
    return PydanticCustomError("mistake", "{text}", {"text": text, "at": at})


def mistakes(found: Iterable[tuple[str, str]]) -> None:
    """Raises one error for each (key, text), if there is any; for keys of the mapping being validated."""
    lines = [InitErrorDetails(type=mistake(text), loc=(key,), input=None) for key, text in found]
    if lines:
        raise ValidationError.from_exception_data("mistakes", lines)


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that ``word`` was probably meant to be."""
    return next(iter(difflib.get_close_matches(word.lower(), sorted(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`` (did you mean 'users'?)``, or nothing where no known word is close."""
    close = nearest(word, known, cutoff)
    return f" (did you mean '{close}'?)" if close else ""


def plain(number: float) -> str:
    """The number as people write it: ``30``, ``0.5``, ``100000``."""
    return str(int(number)) if number == int(number) else str(number)


def without_unit(value: Any) -> str:
    """`` (write 300)`` for ``5m``; nothing where the value is no number with a known unit."""
    found = _NUMBER_WITH_UNIT.fullmatch(value.lower()) if isinstance(value, str) else None
    if not found or found[2] not in _UNITS:
        return ""
    return f" (write {plain(round(float(found[1]) * _UNITS[found[2]], 6))})"


def _guarded(inner: core_schema.CoreSchema, explain: Callable[[Any], str]) -> core_schema.CoreSchema:
    def check(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise mistake(explain(value)) from None

    return core_schema.no_info_wrap_validator_function(check, inner)


@dataclass(frozen=True)
class Whole:
    """An integer from ``low`` to ``high``; ``true`` and ``2.0`` are none."""

    low: int
    high: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        inner = core_schema.int_schema(strict=True, ge=self.low, le=self.high)
        return _guarded(inner, lambda value: f"a whole number from {self.low} to {self.high} is wanted")


@dataclass(frozen=True)
class Number:
    """A finite number from ``low`` (without ``low`` itself where ``above``) to ``high``."""

    low: float
    high: float
    above: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        lower: dict[str, float] = {"gt" if self.above else "ge": self.low}
        inner = core_schema.float_schema(strict=True, allow_inf_nan=False, le=self.high, **lower)  # type: ignore[arg-type]
        return _guarded(inner, self.explain)

    def explain(self, value: Any) -> str:
        return f"a number {self.limits} is wanted"

    @property
    def limits(self) -> str:
        lower = f"above {plain(self.low)} and at most" if self.above else f"from {plain(self.low)} to"
        return f"{lower} {plain(self.high)}"


@dataclass(frozen=True)
class Seconds(Number):
    """A duration: a bare number, because the unit is in the key's name."""

    def explain(self, value: Any) -> str:
        return f"seconds are wanted: a number {self.limits}, without a unit{without_unit(value)}"


@dataclass(frozen=True)
class Text:
    """Printable text, on one line unless ``lines``; ``form`` describes ``pattern`` to a person."""

    form: str = "text"
    pattern: str = r"(?s).*"
    longest: int = 1000
    lines: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        inner = core_schema.str_schema(strict=True, min_length=1, max_length=self.longest)

        def check(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> str:
            try:
                text: str = validate(value)
            except ValidationError:
                raise mistake(self._explain(value)) from None
            printable = self.lines or text.isprintable()
            if not printable or not text.strip() or not re.fullmatch(self.pattern, text):
                raise mistake(self._explain(value))
            return text

        return core_schema.no_info_wrap_validator_function(check, inner)

    def _explain(self, value: Any) -> str:
        quote = " (put it in quotes)" if isinstance(value, bool | int | float) else ""
        length = (
            "" if isinstance(value, str) and len(value) <= self.longest else f" of at most {self.longest} characters"
        )
        return f"{self.form}{length} is wanted{quote}"


@dataclass(frozen=True)
class OneOf:
    """One of the words of the ``Literal`` that it annotates; ``other`` names a further form that the key can take."""

    other: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        words = get_args(source)

        def explain(value: Any) -> str:
            hint = did_you_mean(value, words) if isinstance(value, str) else ""
            return f"one of {', '.join(words)}{self.other} is wanted{hint}"

        return _guarded(handler(source), explain)


@dataclass(frozen=True)
class Switch:
    """``true`` or ``false``; 1 and "yes" are none."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return _guarded(core_schema.bool_schema(strict=True), lambda value: "true or false is wanted")
