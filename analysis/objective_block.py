"""The verdict on the objectives as people read it: levels by classes, what was missed by how much, and up to where."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.check_text import comparison, limit_text
from analysis.level_names import listed
from analysis.objectives import ClassVerdict, Verdict
from analysis.tables import TextTable

TITLE = "Objectives"
_Level = tuple[int | None, float | None, str]  # number of the level, its users or its rate, its name


@dataclass(frozen=True)
class ObjectiveBlock:
    """``table`` is missing where nobody named an objective: then only a missed default is worth a word."""

    table: TextTable | None
    lines: list[str]


def block_of(verdict: Verdict) -> ObjectiveBlock | None:
    """``None`` where there is nothing to say: no objective named, and few enough requests failed."""
    misses = [_miss(one) for one in verdict.classes if not one.met]
    if not any(one.objective for one in verdict.classes):
        return ObjectiveBlock(None, [*misses, _default_missed(verdict)]) if misses else None
    lines = [*misses, _summary(verdict), *_limits(verdict.classes), *_unbounded(verdict.classes)]
    return ObjectiveBlock(_matrix(verdict.classes), lines)


def _matrix(verdicts: tuple[ClassVerdict, ...]) -> TextTable:
    """One row a level, one column a class."""
    names = sorted({one.traffic or "all" for one in verdicts})
    words = {(_level(one), one.traffic or "all"): _word(one) for one in verdicts}
    body = [[_short(level), *(words.get((level, name), "") for name in names)] for level in _levels(verdicts)]
    clocked = any(one.level is not None and one.concurrency is None for one in verdicts)
    head = "load" if clocked else "c"
    return TextTable("objectives", TITLE, [head, *names], body, left=frozenset(range(1, len(names) + 1)))


def _word(one: ClassVerdict) -> str:
    if one.saturated:
        return "missed"
    if not one.met:
        return "missed*" if all(check.no_bound for check in one.checks if not check.met) else "missed"
    if not one.proves:
        return "undecided"
    return "met*" if any(check.no_bound for check in one.checks) else "met"


def _miss(one: ClassVerdict) -> str:
    misses = [comparison(check) for check in one.checks if not check.met]
    return f"{_place(one)}: {', '.join([*(['saturated'] if one.saturated else []), *misses])}"


def _place(one: ClassVerdict) -> str:
    """The class, and the level where the run has levels."""
    return (one.traffic or "all") + (f" at {one.label}" if one.label else "")


def _summary(verdict: Verdict) -> str:
    """Up to which concurrency or rate everything was met; a level may prove nothing."""
    levels = _levels(verdict.classes)
    good = [level for level in levels if all(_proven(one) for one in verdict.classes if _level(one) == level)]
    doubt = "" if verdict.credible else "; the run is not credible, see the notes"
    if levels and levels[0][0] is None:
        return ("all objectives met" if good else "objectives not met") + doubt
    most = max((size or 0 for _, size, _ in good), default=0)
    below = [level for level in levels if (level[1] or 0) <= most]
    if not good:
        text = "objectives met at no level"
    elif most and len(below) == len(good):
        text = f"all objectives met up to {_named(good, most)}"
    else:
        text = f"all objectives met only at {_at(good)}"
    return text + doubt


def _named(levels: list[_Level], size: float) -> str:
    """The largest level by its users or, where it arrives by the clock, by its name."""
    label = next(label for _, own, label in levels if own == size)
    return f"c={size:g}" if label.startswith("c=") or not label else label


def _proven(one: ClassVerdict) -> bool:
    return one.met and one.proves


def _default_missed(verdict: Verdict) -> str:
    levels = _levels(tuple(one for one in verdict.classes if not one.met))
    limit = next(check.limit for one in verdict.classes for check in one.checks)
    where = "" if levels[0][0] is None else f" at {_at(levels)}"
    return f"no objective is named; the default limit of {100 * limit:.10g} % failed requests is missed{where}"


def _limits(verdicts: tuple[ClassVerdict, ...]) -> list[str]:
    """The limits of each class, once."""
    first = {one.traffic or "all": one for one in reversed(verdicts)}
    return [
        f"limits for {name} ({one.objective or 'default'}): {', '.join(limit_text(check) for check in one.checks)}"
        for name, one in sorted(first.items())
    ]


def _unbounded(verdicts: tuple[ClassVerdict, ...]) -> list[str]:
    """Where a decision rests on a quantile of too few requests."""
    weak = tuple(one for one in verdicts if _word(one).endswith("*"))
    if not weak:
        return []
    levels = _levels(weak)
    where = "" if levels[0][0] is None else f" at {_at(levels)}"
    own = "; each class needs requests of its own" if len({one.traffic for one in verdicts}) > 1 else ""
    return [f"*  too few requests to be sure{where}: the deciding quantile has no bound{own}"]


def _level(one: ClassVerdict) -> _Level:
    return one.level, one.size, one.label


def _levels(verdicts: tuple[ClassVerdict, ...]) -> list[_Level]:
    """Levels in the order of the run, each once."""
    return list(dict.fromkeys(_level(one) for one in verdicts))


def _at(levels: list[_Level]) -> str:
    return listed(label for _, _, label in levels)


def _short(level: _Level) -> str:
    """``8`` for c=8, the number of users where a load has no levels."""
    _, users, label = level
    return label.removeprefix("c=") or ("" if users is None else f"{users:g}")
