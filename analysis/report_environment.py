"""What was measured by what: server, model, machine, versions, the scenario as it ran, and how to run it again."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from analysis.limits import mapping
from analysis.outcome import Outcome
from analysis.report_secrets import shown, url_without_secrets, without_secrets
from analysis.report_sections import Block, Code, Facts, Fold, Prose
from analysis.run_folder import Run

_NOT_TOLD = "not told by this source"
_PACKAGES = ("tokenswarm", "locust", "gevent", "geventhttpclient", "msgspec", "python")


def environment_blocks(outcome: Outcome, run: Run | None) -> list[Block]:
    """What is not known is named below the facts."""
    target, made = mapping(outcome.facts.get("target")), mapping(outcome.facts.get("provenance"))
    url = target.get("url")
    rows = [
        ("server", url_without_secrets(str(url)) if url else _NOT_TOLD),
        ("engine", _simulated(target) if outcome.simulated else _text(target.get("engine"))),
        ("model", _text(target.get("model"))),
        ("begun", _text(outcome.facts.get("created"))),
        ("run id", _text(outcome.facts.get("run_id"))),
        ("source", f"{outcome.source}: {outcome.path}"),
        ("versions", ", ".join(f"{name} {made[name]}" for name in _PACKAGES if made.get(name)) or _NOT_TOLD),
        ("load generator ran on", _machine(made)),
        ("load processes", _processes(run)),
    ]
    told = tuple((name, shown(value)) for name, value in rows if value != _NOT_TOLD)
    untold = [name for name, value in rows if value == _NOT_TOLD]
    return [Facts(told), *([Prose((f"Not told by this source: {', '.join(untold)}.",))] if untold else [])]


def configuration_blocks(outcome: Outcome, run: Run | None) -> list[Block]:
    """The scenario as written, without comments and secrets, and folded the same with all defaults."""
    facts = {} if run is None else run.facts
    written = _parsed(facts.get("scenario_text"))
    blocks: list[Block] = []
    if written:
        blocks.append(Code(_yaml(written)))
    if outcome.scenario:
        whole = Code(_yaml(outcome.scenario))
        blocks.append(Fold("The same with all defaults filled in", (whole,)) if written else whole)
    return blocks or [Prose(("No scenario: this source does not say what was asked for.",))]


def repeat_blocks(outcome: Outcome) -> list[Block]:
    """Command, seed, versions and digest, as far as they are known."""
    made = mapping(outcome.facts.get("provenance"))
    command = made.get("command")
    if not command:
        return [Prose(("How it was run is not told by this source.",))]
    lines = [f"pip install {name}=={made[name]}" for name in ("locust", "gevent", "geventhttpclient") if made.get(name)]
    text = "\n".join(
        [*([f"# tokenswarm {made['tokenswarm']}"] if made.get("tokenswarm") else []), *lines, shown(str(command))]
    )
    seed = outcome.facts.get("seed")
    same = (
        f"Seed {seed}: with it, the scenario above and the same versions, the same requests are sent in the same order."
        if seed is not None
        else "The seed is unknown, so the words of the prompts will differ."
    )
    again = f"This page again: python -m analysis report {shlex.quote(shown(outcome.path))}"
    return [Code(text), Prose((same, again))]


def _text(value: object, unknown: str = _NOT_TOLD) -> str:
    return unknown if value in (None, "") else str(value)


def _simulated(target: dict[str, Any]) -> str:
    preset = target.get("preset")
    return "SIMULATED" + (f", preset {preset}" if preset else "")


def _machine(made: dict[str, Any]) -> str:
    parts = [_text(made.get("platform"), ""), f"{made['host_cpus']} CPUs" if made.get("host_cpus") else ""]
    return ", ".join(part for part in parts if part) or _NOT_TOLD


def _processes(run: Run | None) -> str:
    names = [] if run is None else sorted({str(name) for name in run.requests["worker"].dropna().unique()})
    if not names:
        return _NOT_TOLD
    few = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"{len(names)} ({few})"


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return mapping(found)


def _yaml(value: Any) -> str:
    return yaml.safe_dump(
        without_secrets(value), sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
