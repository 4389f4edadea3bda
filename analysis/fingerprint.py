"""What two runs must have in common to be compared, and where they differ.

Everything that shapes the load or defines a figure counts. What is usually the reason to compare (model, server, its
preset) may differ and is only told; whatever else may differ has to be named by the reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from analysis.compared_run import ComparedRun
from analysis.limits import mapping

# May differ without being named: what is compared, and what only decides which words are sent.
FREE = ("model", "url", "preset", "seed", "tls", "timeouts")
_VERSIONS = ("tokenswarm", "locust", "gevent", "geventhttpclient", "python", "platform", "host_cpus")
_UNSET: Any = None


@dataclass(frozen=True)
class Difference:
    """``name`` is what ``--allow`` takes; ``allowed``: by its kind or by the reader."""

    name: str
    base: str
    candidate: str
    allowed: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.base} against {self.candidate}"


def fingerprint_of(one: ComparedRun) -> dict[str, Any]:
    """Name and value of everything that is known; nothing of what a source does not tell."""
    facts, scenario, outcome = (one.run.facts if one.run else {}), one.outcome.scenario, one.outcome
    target, asked = mapping(facts.get("target")), mapping(scenario.get("target"))
    found: dict[str, Any] = {"source": _kind(one), "simulated": outcome.simulated}
    found |= {name: target.get(name) for name in ("model", "url", "preset")}
    found |= {name: asked.get(name) for name in ("api", "request", "tls", "timeouts")}
    found |= {name: mapping(facts.get("provenance")).get(name) for name in _VERSIONS}
    found |= {"seed": facts.get("seed"), "input_tokens_source": facts.get("input_tokens_source")}
    found |= {f"isolation.{name}": value for name, value in mapping(facts.get("isolation")).items()}
    found |= _traffic(scenario) | _load(scenario)
    return {name: value for name, value in found.items() if value is not None}


def differences(base: ComparedRun, candidate: ComparedRun, allowed: Iterable[str]) -> list[Difference]:
    """Those that forbid the comparison first. A fact that only one of the two tells is no difference but where both
    have a scenario: there, a key that is not set is a value as well."""
    first, second = fingerprint_of(base), fingerprint_of(candidate)
    named, found = (*FREE, *allowed), []
    whole = bool(base.outcome.scenario) and bool(candidate.outcome.scenario)
    for name in sorted({*first, *second}):
        ours, theirs = first.get(name, _UNSET), second.get(name, _UNSET)
        known = ours is not None and theirs is not None
        if ours != theirs and (known or (whole and name.startswith(("traffic.", "load.")))):
            found.append(Difference(name, _shown(ours), _shown(theirs), _is_allowed(name, named)))
    return sorted(found, key=lambda one: one.allowed)


def unknown(one: ComparedRun) -> str | None:
    """What nobody can check of this run; ``None`` where its scenario is known."""
    if one.outcome.scenario:
        return None
    return f"{one.outcome.name}: {one.outcome.source} tells no scenario: that the load was the same is taken on trust"


def _is_allowed(name: str, named: Iterable[str]) -> bool:
    """``traffic`` allows all of it, ``traffic.chat.input_tokens`` one key."""
    return any(name == one or name.startswith(f"{one}.") for one in named)


def _kind(one: ComparedRun) -> str:
    """A requests.csv has the figures of its run folder, by the same definitions."""
    return "run folder" if one.run is not None else one.outcome.source


def _traffic(scenario: dict[str, Any]) -> dict[str, Any]:
    """Every key of every class; objectives judge the load and do not shape it."""
    classes = scenario.get("traffic")
    return {
        f"traffic.{item.get('name')}.{name}": value
        for item in (classes if isinstance(classes, list) else [])
        if isinstance(item, dict)
        for name, value in item.items()
        if name not in ("name", "objective")
    }


def _load(scenario: dict[str, Any]) -> dict[str, Any]:
    """Every key but the list of levels, which are matched one by one."""
    found: dict[str, Any] = {}
    for kind, load in mapping(scenario.get("load")).items():
        if not isinstance(load, dict):
            found[f"load.{kind}"] = load
            continue
        found[f"load.{kind}"] = "yes"
        found |= {f"load.{name}": value for name, value in load.items() if name not in _LEVELS}
    return found


_LEVELS = ("users", "requests_per_s", "sessions_per_s")


def _shown(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
