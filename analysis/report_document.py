"""Everything about a run, in the order in which it is read; with a base before it, also how the two differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.audit import audit_notes
from analysis.compared_run import ComparedRun
from analysis.legend import legend_of
from analysis.notes import SIMULATED_TEXT
from analysis.objectives import Verdict, judge
from analysis.outcome import Outcome
from analysis.render import Choice, footnotes_of, parts_of, title_of
from analysis.report_capacity import capacity_blocks, sets_of
from analysis.report_comparison import comparison_blocks
from analysis.report_curves import curves
from analysis.report_distributions import distributions
from analysis.report_environment import configuration_blocks, environment_blocks, repeat_blocks
from analysis.report_findings import Findings, findings
from analysis.report_method import method_blocks
from analysis.report_results import result_blocks
from analysis.report_secrets import cleared
from analysis.report_sections import Block, Bullets, Document, Fold, Prose, Section, Sentence
from analysis.report_timeline import timeline


def document_of(runs: Sequence[ComparedRun], allowed: Sequence[str] = ()) -> Document:
    """Of the last run; with a base before it, also of how the two differ. ``allowed``: differences that are wanted."""
    last = runs[-1]
    outcome, run = _audited(last.outcome), last.run
    verdict, sets = judge(outcome), sets_of(outcome, run)
    sections = [
        Section("findings", "Findings", _finding_blocks(findings(outcome, verdict, sets), outcome)),
        *([Section("comparison", "Comparison", comparison_blocks(runs[0], last, allowed))] if len(runs) == 2 else []),
        *([Section("guidance", "Capacity", capacity_blocks(outcome, sets))] if not outcome.names else []),
        Section("load", "Over the load", [curves(outcome)]),
        Section(
            "results", "Results", [*result_blocks(outcome, parts_of(outcome, verdict, Choice())), *_notes(outcome)]
        ),
        Section("distributions", "Distributions", [distributions(outcome, run)]),
        Section("timeline", "Timeline", [timeline(run)]),
        Section("environment", "Environment", environment_blocks(outcome, run)),
        Section("configuration", "Configuration", configuration_blocks(outcome, run)),
        Section("method", "Method", method_blocks(outcome)),
        Section("repeat", "How to repeat it", repeat_blocks(outcome)),
    ]
    return cleared(Document(_title(runs), _subtitle(outcome, verdict), _badges(last), sections))


def _audited(outcome: Outcome) -> Outcome:
    """With the notes of the audit, also where it was read for a comparison."""
    known = {note.text for note in outcome.notes}
    return replace(outcome, notes=[*outcome.notes, *(note for note in audit_notes(outcome) if note.text not in known)])


def _finding_blocks(found: Findings, outcome: Outcome) -> list[Block]:
    blocks: list[Block] = []
    if outcome.simulated:
        blocks.append(Prose((f"SIMULATED: {SIMULATED_TEXT}.",)))
    if found.warnings:
        blocks.append(Bullets(found.warnings, warn=True))
    if outcome.doubts and found.said:
        blocks.append(Prose(("The run as a whole is not credible; this is what it says as far as it goes:",)))
    blocks.append(
        Bullets(found.said) if found.said else Prose(("No rule found enough here to draw a conclusion from.",))
    )
    if found.advice:
        blocks += [Prose(("To be surer next time:",)), Bullets(found.advice, warn=True)]
    if found.withheld:
        blocks.append(Fold("What cannot be said, and why", (Bullets(found.withheld),)))
    return blocks


def _notes(outcome: Outcome) -> list[Block]:
    """Below the tables: failures, notes, and what the marks mean."""
    notes = footnotes_of(outcome, Choice(notes=True))
    legend = [line for line in legend_of(outcome) if not line.startswith("definitions:")]
    said = [line for line in notes if line not in legend_of(outcome)]
    blocks: list[Block] = [Fold("Notes on this run", (Bullets(tuple(map(Sentence, said))),))] if said else []
    return [Bullets(tuple(map(Sentence, legend))), *blocks] if legend else blocks


def _title(runs: Sequence[ComparedRun]) -> str:
    outcome = runs[-1].outcome
    name = title_of(outcome).removesuffix(" · SIMULATED")
    return f"{name} against {title_of(runs[0].outcome).removesuffix(' · SIMULATED')}" if len(runs) == 2 else name


def _badges(one: ComparedRun) -> tuple[str, ...]:
    interrupted = one.run is not None and one.run.whole_folder and one.run.end is None
    return (*(["SIMULATED"] if one.outcome.simulated else []), *(["INTERRUPTED"] if interrupted else []))


def _subtitle(outcome: Outcome, verdict: Verdict) -> str:
    counts = [row.requests for row in outcome.levels] or [row.requests for row in outcome.names if not row.is_total]
    created = str(outcome.facts.get("created") or "").replace("T", " ")
    levels = f"{len(outcome.levels)} level{'s' if len(outcome.levels) != 1 else ''}" if outcome.levels else ""
    credible = "" if verdict.credible else "not credible, see below"
    parts = [created, f"{sum(counts)} measured requests", levels, credible]
    return " · ".join(part for part in parts if part)
