"""``python -m analysis captions RUN [RUN ...]``: captioning runs side by side, at each number of streams."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.caption_table import SHOWN, caption_rows, caption_table, shares_of
from analysis.columns import scaled
from analysis.export import cell_of, level_object, safe_text
from analysis.figures import LEGEND, SYMBOL, Mark
from analysis.legend import DEFINITIONS, LIMITED_LINE
from analysis.levels import LevelRow
from analysis.notes import SIMULATED_TEXT
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.report import Report, add_report_options
from analysis.source import read_outcome
from analysis.tables import TextTable, level_cell, load_title
from tokenswarm.errors import InputError, RunFolderError

PLOT_FORMATS = (".svg", ".png", ".pdf")


@dataclass(frozen=True)
class CaptionLevel:
    """A class with pictures at one level of a run; ``whole`` is that level, which has the verdicts on the caches."""

    name: str  # of the run, as it differs from the others; with the class where the run has several
    outcome: Outcome
    row: LevelRow
    whole: LevelRow

    @property
    def size(self) -> float | None:
        """Streams at the same time, or the rate at which sessions arrive; ``None`` where neither is known."""
        arrivals = self.whole.arrivals
        return self.row.concurrency if arrivals is None else arrivals.rate_per_s

    @property
    def credible(self) -> bool:
        return self.whole.complete and not self.whole.contaminated and not self.whole.limited


def report(paths: Sequence[str], options: argparse.Namespace) -> str:
    """The whole text in the format asked for; ``--plot`` writes its file as well.

    Raises ``RunFolderError`` for a run without pictures, ``InputError`` for a plot that cannot be written.
    """
    outcomes = [read_outcome(path, failures_infinite=options.failures_infinite) for path in paths]
    levels = caption_levels(outcomes)
    if options.plot:
        _plot(levels, Path(options.plot))
    return Report(
        _title(outcomes),
        parts=lambda: _parts(levels),
        footnotes=_footnotes(outcomes, levels),
        document=lambda: _document(outcomes, levels),
        csv=lambda: _csv(levels),
    ).text(options)


def caption_levels(outcomes: Sequence[Outcome]) -> list[CaptionLevel]:
    """All levels of all runs, those of few streams first, the runs beside each other."""
    levels = []
    for outcome, name in zip(outcomes, names_of(outcomes), strict=True):
        rows = caption_rows(outcome)
        if not rows:
            wanted = "wanted a run with captioning traffic, but no measured request of it had pictures"
            raise RunFolderError(f"{outcome.path}: {wanted}")
        several = len({row.traffic for row in rows}) > 1
        whole = {row.level: row for row in outcome.levels}
        levels += [
            CaptionLevel(f"{name} {row.traffic}" if several else name, outcome, row, whole[row.level]) for row in rows
        ]
    return sorted(levels, key=lambda one: one.size or 0)


def names_of(outcomes: Sequence[Outcome]) -> list[str]:
    """The models where they differ, else the runs' names, else their folders."""
    choices = (
        [_model(outcome) for outcome in outcomes],
        [outcome.name for outcome in outcomes],
        [f"{_model(outcome)} {outcome.name}".strip() for outcome in outcomes],
        [Path(outcome.path).resolve().name for outcome in outcomes],
    )
    distinct = (names for names in choices if all(names) and len(set(names)) == len(names))
    return next(distinct, [outcome.path for outcome in outcomes])


def _model(outcome: Outcome) -> str:
    target = outcome.facts.get("target")
    return str(target.get("model") or "") if isinstance(target, dict) else ""


def _title(outcomes: Sequence[Outcome]) -> str:
    simulated = ["SIMULATED"] if any(outcome.simulated for outcome in outcomes) else []
    return " · ".join(["captions", *dict.fromkeys(outcome.name for outcome in outcomes), *simulated])


def _parts(levels: list[CaptionLevel]) -> list[Part]:
    header = [load_title(one.whole for one in levels), "run"]
    columns = [[level_cell(one.whole) for one in levels], [one.name for one in levels]]
    shares = [share for one in levels for share in shares_of([one.whole], [one.row])]
    table = caption_table(header, columns, [one.row for one in levels], shares)
    verdicts = [[_verdict(one.whole, cache) for cache in ("image_cache", "cache")] for one in levels]
    first = len(table.header)
    told = TextTable(
        table.key,
        "",
        [*table.header, "verdict on MM cache", "verdict on prefix cache"],
        [[*cells, *words] for cells, words in zip(table.rows, verdicts, strict=True)],
        table.fixed,
        table.left | {first, first + 1},
    )
    return [Part("", told, [])]


def _verdict(level: LevelRow, cache: str) -> str:
    found = level.image_cache if cache == "image_cache" else level.cache
    return "" if found is None else found.verdict


def _footnotes(outcomes: Sequence[Outcome], levels: list[CaptionLevel]) -> list[str]:
    simulated = [name for outcome, name in zip(outcomes, names_of(outcomes), strict=True) if outcome.simulated]
    notes = [f"SIMULATED ({', '.join(simulated)}): {SIMULATED_TEXT}"] if simulated else []
    reasons = {f"{one.name}, {one.whole.name}: {one.whole.state}" for one in levels if not one.whole.complete}
    marks = {mark for one in levels for column in SHOWN for mark in one.row.figure(column.figure).marks}
    notes += [*sorted(reasons), *(f"{SYMBOL[mark]}  {LEGEND[mark]}" for mark in Mark if mark in marks)]
    if any(one.whole.contaminated for one in levels):
        notes.append("†  contaminated: more came from the server's caches than this load implies; leave the level out")
    if any(one.whole.limited for one in levels):
        notes.append(LIMITED_LINE)
    title = load_title(one.whole for one in levels)
    meaning = "streams at the same time" if title == "c" else "how sessions arrive, or streams at the same time"
    return [*notes, f"{title}: {meaning}", DEFINITIONS]


def _csv(levels: Iterable[CaptionLevel]) -> str:
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(
        ["run", "model", "concurrency", "label", "traffic", "state", *(column.key for column in SHOWN)]
        + [f"{cache}_{part}" for cache in ("image_cache", "cache") for part in ("share", "share_implied", "verdict")]
        + ["simulated", "path"]
    )
    for one in levels:
        shares = [cell for cache in ("image_cache", "cache") for cell in _share_cells(one.whole, cache)]
        write(
            [safe_text(one.name), safe_text(_model(one.outcome)), cell_of(one.row.concurrency), one.row.label]
            + [safe_text(one.row.traffic or ""), one.row.state]
            + [cell_of(scaled(one.row.figure(column.figure), column).value) for column in SHOWN]
            + [*shares, str(one.outcome.simulated).lower(), safe_text(one.outcome.path)]
        )
    return out.getvalue()


def _share_cells(level: LevelRow, cache: str) -> list[str]:
    """Measured and implied share, and the verdict."""
    shares = (level.figure(f"{cache}_{part}").value for part in ("share", "share_implied"))
    return [*map(cell_of, shares), _verdict(level, cache)]


def _document(outcomes: Sequence[Outcome], levels: list[CaptionLevel]) -> dict[str, Any]:
    return {
        "format": 1,
        "runs": [
            {
                "name": name,
                "path": outcome.path,
                "model": _model(outcome) or None,
                "simulated": outcome.simulated,
                "levels": [
                    level_object(one.row) | {"level_caches": _caches(one.whole)}
                    for one in levels
                    if one.outcome is outcome
                ],
            }
            for outcome, name in zip(outcomes, names_of(outcomes), strict=True)
        ],
    }


def _caches(level: LevelRow) -> dict[str, Any]:
    """The verdicts on the caches for all classes of the level together: counters know no classes."""
    known = level_object(level)
    return {name: known[name] for name in ("image_cache", "cache")}


def _plot(levels: list[CaptionLevel], file: Path) -> None:
    if file.suffix.lower() not in PLOT_FORMATS:
        raise InputError(f"--plot {file}: wanted a file that ends in {', '.join(PLOT_FORMATS)}")
    from analysis.caption_plot import draw  # the library takes half a second to load

    try:
        draw(levels, file)
    except OSError as error:
        raise InputError(f"--plot {file}: cannot be written: {error.strerror}") from error


def add_options(options: argparse.ArgumentParser) -> None:
    add_report_options(options, "run folders or requests.csv files")
    add = options.add_argument
    add("--plot", metavar="FILE", help="also draw captions per hour and TTFT over the streams: .svg, .png or .pdf")
    add("--failures-infinite", action="store_true", help="quantiles count a failed request as infinitely late")
