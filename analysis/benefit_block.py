"""The prefix-cache test as people read it: the answer of each level, the tables behind it, and their limits."""

from __future__ import annotations

import math

from analysis.benefit import FLOOR_S, FLOOR_SHARE, SMALLEST_SAMPLE, Answer, Difference
from analysis.benefit_test import BenefitTest, PairedLevel
from analysis.columns import decimals_for, number_text
from analysis.figures import SYMBOL, Figure, Mark
from analysis.pairs import MEASURES
from analysis.part import Part
from analysis.tables import TextTable, level_cell
from analysis.whole_levels import Comparison, WholeLevels
from tokenswarm.schedule import Arms

TITLE = "Benefit of the prefix cache"
_WHOLE_TITLE = "Throughput of whole levels"
_SECONDS = 1.0  # where a measure is below at some level, its times are in milliseconds
_HEADLINES = {"ttft": "TTFT a request", "first_ttft": "TTFT in its first request"}
_QUESTIONS = {
    "session": "question: what does a session save because others' prompts are cached? "
    "A cold session reuses only its own earlier requests",
    "request": "question: what does a request save by everything that is cached? A cold request reuses nothing",
}
LIMIT = (
    "limit: cold and warm sessions share one server and its KV memory at the same time, so this is the latency that "
    "cached prompts save a session at this mix, not the throughput that the server gains where all traffic is warm"
)
_WHOLE_LIMIT = (
    "whole levels ran in the order cold, warm, warm, cold, which cancels an even drift; warm/cold is the mean of both "
    "halves, floor the larger difference between two equal levels: a ratio within it means nothing"
)


def benefit_parts(test: BenefitTest) -> list[Part]:
    """Parts of a report in reading order."""
    parts = []
    if test.levels:
        parts.append(Part(TITLE, _difference_table(test.levels), [_sentence(level) for level in test.levels]))
        parts.append(Part("", _cached_table(test.levels), _remarks(test)))
    if test.whole:
        parts.append(Part(_WHOLE_TITLE, _whole_table(test.whole), [_WHOLE_LIMIT, *_partial(test.whole)]))
    return parts


# -- the paired levels ---------------------------------------------------------------------------------------------


def _difference_table(levels: list[PairedLevel]) -> TextTable:
    header = ["c", "measure", "cold", "warm", "saved", "interval 95 %", "share", "verdict"]
    colds = {measure: [level.differences[measure].cold or 0.0 for level in levels] for measure in MEASURES}
    long = {measure for measure, cold in colds.items() if min(cold) >= _SECONDS}
    body = [
        [_users(level), *_difference_cells(level.differences[one], in_s=one in long, void=level.answer is None)]
        for level in levels
        for one in _shown(level)
    ]
    return TextTable("benefit", TITLE, header, body, fixed=2, left=frozenset({1, 5, 7}))


def _users(level: PairedLevel) -> str:
    """The level's short name; that it is paired goes without saying here."""
    return level_cell(level.row).replace(f" {Arms.PAIRED}", "", 1)


def _shown(level: PairedLevel) -> list[str]:
    """Measures that say something of their own: with one request a session they are TTFT and E2E."""
    return list(MEASURES) if level.pairs.several_requests else ["ttft", "e2e"]


def _difference_cells(difference: Difference, *, in_s: bool, void: bool) -> list[str]:
    measure, median = difference.measure, difference.median
    unit, scale, least = ("s", 1.0, 1) if in_s else ("ms", 1000.0, 0)
    shown = (difference.cold, difference.warm, median.value)
    decimals = min(3, decimals_for((None if value is None else value * scale for value in shown), least))

    def plain(value: float | None) -> str:
        return "" if value is None else f"{value * scale:.{decimals}f}"

    def text(value: float | None) -> str:
        return "" if value is None else f"{plain(value)} {unit}"

    mark = SYMBOL[Mark.NO_BOUND] if Mark.NO_BOUND in median.marks else ""
    return [
        MEASURES[measure],
        text(difference.cold),
        text(difference.warm),
        text(median.value) + mark,
        "" if median.low is None else f"{plain(median.low)} to {text(median.high)}",
        "" if difference.relative is None else f"{round(100 * difference.relative)} %",
        "" if void else difference.answer,
    ]


def _sentence(level: PairedLevel) -> str:
    """The answer of a level in words."""
    name, difference = level.row.name, level.differences[level.headline]
    if level.answer is None:
        return f"{name}: no verdict: {next(finding.text for finding in level.findings if finding.void)}"
    return f"{name}: {level.answer}: {_reason(difference)}"


def _reason(difference: Difference) -> str:
    median, floor, what = difference.median, _ms(difference.floor_s), _HEADLINES[difference.measure]
    if median.value is None or median.low is None or median.high is None:
        have = "pair is" if difference.pairs == 1 else "pairs are"
        return f"{difference.pairs} {have} too few for an interval, {SMALLEST_SAMPLE} are needed"
    between = f"{_ms(median.low).removesuffix(' ms')} to {_ms(median.high)}"
    match difference.answer:
        case Answer.BENEFIT:
            share = "" if difference.relative is None else f", {round(100 * difference.relative)} % of it"
            basis = f"median of {difference.pairs} pairs, 95 %: {between}"
            return f"a session saves {_ms(median.value)} of {what} ({basis}){share}"
        case Answer.NONE if median.high < 0:
            return (
                f"with cached prompts a session waits {_ms(-median.high)} to {_ms(-median.low)} longer, {what} (95 %)"
            )
        case Answer.NONE:
            return f"a session saves less than {floor} of {what} (95 %: {between})"
        case Answer.UNKNOWN:
            return f"a session saves {between} of {what} (95 %), the floor is {floor}{_more_pairs(difference)}"


def _more_pairs(difference: Difference) -> str:
    """How many pairs would have an interval narrow enough, if the median stayed where it is."""
    value, floor = difference.median.value or 0.0, difference.floor_s
    low, high = difference.median.low or 0.0, difference.median.high or 0.0
    room, half = (value, value - low) if value >= floor else (floor - value, high - value)
    if room <= 0 or half <= room:
        return ""
    pairs = math.ceil(1.2 * difference.pairs * (half / room) ** 2)
    return f"; if the median stays, about {pairs} pairs would tell (load.closed.sessions: {2 * pairs})"


def _cached_table(levels: list[PairedLevel]) -> TextTable:
    header = ["c", "pairs", "left out", "prompt tokens", "cached cold", "cached warm", "saved per 1,000 cached tokens"]
    body = [
        [
            _users(level),
            str(len(level.pairs)),
            str(level.pairs.incomplete),
            *(_count(value) for value in (level.cached.prompt, level.cached.cold, level.cached.warm)),
            _per_thousand(level.cached.saved_s_per_token),
        ]
        for level in levels
    ]
    return TextTable("cached", "", header, body, left=frozenset({6}))


def _count(tokens: float | None) -> str:
    return "" if tokens is None else f"{tokens:,.0f}"


def _per_thousand(figure: Figure) -> str:
    if figure.value is None:
        return ""
    if figure.low is None or figure.high is None:
        return f"{_ms(figure.value * 1000)}{SYMBOL[Mark.NO_BOUND]}"
    value, low, high = (_ms(end * 1000) for end in (figure.value, figure.low, figure.high))
    return f"{value} ({low.removesuffix(' ms')} to {high})"


def _ms(seconds: float) -> str:
    return f"{number_text(seconds * 1000, 0)} ms"


# -- what one must know to read them -------------------------------------------------------------------------------


def _remarks(test: BenefitTest) -> list[str]:
    findings: dict[str, list[str]] = {}
    for level in test.levels:
        for finding in level.findings:
            if not finding.void:
                findings.setdefault(finding.text, []).append(level.row.name)
    lines = [f"{', '.join(names)}: {text}" for text, names in findings.items()]
    for level in test.levels:
        lines += [
            f"{level.row.name}: {text}"
            for text in (_not_complete(level), _contaminated(level), _left_out(level))
            if text
        ]
    probe = str(test.rules.probe.get("line") or "")
    shown = [level.differences[measure].median for level in test.levels for measure in _shown(level)]
    if any(Mark.NO_BOUND in median.marks for median in shown):
        lines.append(f"{SYMBOL[Mark.NO_BOUND]}  fewer than {SMALLEST_SAMPLE} pairs: no interval")
    return [
        *lines,
        _QUESTIONS.get(test.rules.cold or "", "question: unknown, only requests.csv was read"),
        _isolation(test),
        *([f"probe: prefix cache: {probe}"] if probe else []),
        LIMIT + ("" if test.whole else "; for that, set prefix_cache.throughput: true"),
        "saved: median over pairs of cold - warm, same text and lengths in both; cached tokens are those of a request",
        f"benefit: the whole interval is above 0 and the median at least {_floor_text()}; no benefit: the whole "
        "interval is below that floor",
    ]


def _floor_text() -> str:
    return f"{100 * FLOOR_SHARE:g} % of the cold median and {1000 * FLOOR_S:g} ms"


def _not_complete(level: PairedLevel) -> str:
    row = level.row
    return "" if row.complete else f"the level is {row.state}{': ' + row.reason if row.reason else ''}"


def _contaminated(level: PairedLevel) -> str:
    cache = level.row.cache
    return f"contaminated: {cache.reason}" if cache is not None and cache.contaminated else ""


def _left_out(level: PairedLevel) -> str:
    if not level.pairs.incomplete:
        return ""
    arms = ", ".join(
        f"{arm}: {one.started} sessions, {one.failed} failed, {one.cut} cut"
        for arm, one in level.pairs.sessions.items()
    )
    return f"{level.pairs.incomplete} pairs left out, a session of which did not come to its end ({arms})"


def _isolation(test: BenefitTest) -> str:
    match test.rules.by:
        case "salt":
            return "the arms are kept apart by cache_salt"
        case "nonce":
            tokens = "" if test.nonce_tokens is None else f" of {test.nonce_tokens} tokens"
            text = f"the arms are kept apart by a nonce{tokens} at the head of every prompt, in both arms"
            before = test.rules.before_nonce
            return f"{text}; {before} tokens stand before it, and cold sessions find them too" if before else text
        case _:
            return "how the arms were kept apart is unknown"


# -- whole levels --------------------------------------------------------------------------------------------------


def _whole_table(whole: list[WholeLevels]) -> TextTable:
    header = ["c", "measure", "cold", "warm", "warm #2", "cold #2", "warm/cold", "halves", "floor", "verdict"]
    body = [
        ["" if four.users is None else str(four.users), *_comparison_cells(comparison)]
        for four in whole
        for comparison in four.comparisons
    ]
    return TextTable("whole levels", _WHOLE_TITLE, header, body, fixed=2, left=frozenset({1, 7, 9}))


def _comparison_cells(comparison: Comparison) -> list[str]:
    decimals = decimals_for(comparison.values, comparison.measure.decimals)
    ratio, halves, floor = comparison.ratio, comparison.halves, comparison.floor
    return [
        comparison.measure.title,
        *("" if value is None else f"{value:.{decimals}f}" for value in comparison.values),
        "" if ratio is None else f"{ratio:.3f}",
        "" if halves is None else f"{halves[0]:.3f}, {halves[1]:.3f}",
        "" if floor is None else f"±{100 * floor:.1f} %",
        comparison.answer,
    ]


def _partial(whole: list[WholeLevels]) -> list[str]:
    names = [name for four in whole for name in four.partial]
    return [f"not complete: {', '.join(names)}"] if names else []
