"""The limits of the scenario's objectives, by traffic class."""

from __future__ import annotations

from typing import Any


def objective_names(scenario: dict[str, Any]) -> dict[str, str | None]:
    """Name of each class' objective; ``None`` where it has none."""
    traffic = scenario.get("traffic")
    classes = [item for item in traffic if isinstance(item, dict)] if isinstance(traffic, list) else []
    return {str(item.get("name")): item.get("objective") for item in classes}


def limits_by_class(scenario: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What stands in each class' objective; nothing where it has none."""
    objectives = mapping(scenario.get("objectives"))
    return {name: mapping(objectives.get(named or "")) for name, named in objective_names(scenario).items()}


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
