"""Rules between the keys that say how hard, checked on the data as read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tokenswarm.open_load import Open
from tokenswarm.wanted import nearest
from tokenswarm.workload import Closed, Load
from tokenswarm.yaml_source import Path

_AMOUNTS = ("sessions", "requests", "duration_s")
_SESSIONS_ONLY = ("warmup_sessions", "tail", "time_limit_s")
_RATES = ("requests_per_s", "sessions_per_s")
_TURNS = {"chat": 1, "captioning": 2, "agentic": 2}  # where they are left out; an agent's number is not known before

Found = Iterator[tuple[Path, str]]


def load_rules(load: Any, classes: list[dict[str, Any]], *, searchable: str | None) -> Found:
    """What is wrong with ``load`` for traffic of these ``classes``. ``searchable``: what is said of a search, where
    something stands in its way."""
    given, load = load is not None, load if isinstance(load, dict) else {}
    ways = [way for way in Load.model_fields if load.get(way) is not None]
    if given and not ways and not any(nearest(key, Load.model_fields) for key in load if key not in Load.model_fields):
        yield ("load",), "closed, open or replay is wanted: how is the load driven?"
    for surplus in ways[1:]:
        yield ("load", surplus), f"{ways[0]} and {surplus} exclude each other; keep one"
    parts = {way: load[way] for way in ways if isinstance(load[way], dict)}
    yield from _closed(parts.get("closed", {}), classes)
    yield from _open(parts.get("open", {}), classes)
    yield from _replay("replay" in parts, classes)
    for way, keys in (("closed", ("users",)), ("open", _RATES)):
        for key in keys:
            asked = parts.get(way, {}).get(key)
            if isinstance(asked, dict) and "search" in asked and parts[way].get("fresh_prompts") is False:
                yield ("load", way, "fresh_prompts"), "a search needs fresh prompts at every level; leave this out"
            if searchable is not None and isinstance(asked, dict) and "search" in asked:
                yield ("load", way, key), searchable


def _closed(closed: dict[str, Any], classes: list[dict[str, Any]]) -> Found:
    if not closed:
        return
    place: Path = ("load", "closed")
    amounts = [key for key in _AMOUNTS if closed.get(key) is not None]
    misspelt = any(nearest(key, _AMOUNTS) for key in closed if key not in Closed.model_fields)
    if not amounts and not misspelt:
        yield place, "sessions or duration_s is wanted: when does a level end?"
    for surplus in amounts[1:]:
        yield (*place, surplus), f"{amounts[0]} and {surplus} exclude each other; keep one"
    if "requests" in amounts and not all(map(_one_turn, classes)):
        yield (*place, "requests"), "requests is for traffic whose sessions all have one turn; use sessions"
    if amounts:
        wrong, right = (_SESSIONS_ONLY, "sessions") if amounts == ["duration_s"] else (("warmup_s",), "duration_s")
        yield from (((*place, key), f"{key} goes with {right} only") for key in wrong if closed.get(key) is not None)


def _open(open_loop: dict[str, Any], classes: list[dict[str, Any]]) -> Found:
    if not open_loop:
        return
    place: Path = ("load", "open")
    rates = [key for key in _RATES if open_loop.get(key) is not None]
    if not rates and not any(nearest(key, _RATES) for key in open_loop if key not in Open.model_fields):
        yield place, "sessions_per_s or requests_per_s is wanted: how many arrive?"
    for surplus in rates[1:]:
        yield (*place, surplus), f"{rates[0]} and {surplus} exclude each other; keep one"
    if "requests_per_s" in rates and not all(map(_one_turn, classes)):
        yield (
            (*place, "requests_per_s"),
            "requests_per_s is for traffic whose sessions all have one turn; use sessions_per_s",
        )


def _replay(replayed: bool, classes: list[dict[str, Any]]) -> Found:
    kinds = [item.get("kind", "chat") for item in classes]
    if replayed and not classes:
        yield ("load", "replay"), "needs traffic of kind: trace"
    for index, kind in enumerate(kinds):
        if replayed and kind != "trace":
            yield ("traffic", index, "kind"), "a replayed trace decides the sessions; kind: trace is wanted"
        if not replayed and kind == "trace":
            yield ("traffic", index, "kind"), "kind: trace goes with load.replay only"


def _one_turn(item: dict[str, Any]) -> bool:
    kind = item.get("kind", "chat")
    turns = item.get("turns", _TURNS.get(kind, 1) if isinstance(kind, str) else 1)
    several = isinstance(turns, int | float | dict) and turns not in (1, {"fixed": 1})
    return not several and not isinstance(item.get("prompts"), dict)
