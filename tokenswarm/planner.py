"""Makes the plan of a run: asks the target what it is, what words cost there, and what its prefix cache does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokenswarm.arms import Isolation
from tokenswarm.cache_probe import CacheProbe, probe_cache
from tokenswarm.cached_tokens import listed_model
from tokenswarm.casting import Casting
from tokenswarm.context_length import require_room, require_room_for_trace
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import InputError, TargetError
from tokenswarm.image_store import check_images
from tokenswarm.plan import Plan
from tokenswarm.prompts import survey_scenario
from tokenswarm.records import Phase
from tokenswarm.scenario import Scenario
from tokenswarm.target import counting_server, find_model, is_simulated, model_list, prober, request_headers
from tokenswarm.trace_files import Trace, read_trace

REUSING = {"agentic", "captioning", "trace"}  # kinds of traffic whose prompts begin as earlier ones did


class Planner:
    """Makes the plan of each run: Locust's page can name another host than the command line did."""

    def __init__(self, scenario: Scenario, kind: str | None, simulator_url: str | None) -> None:
        self.scenario = scenario
        self._kind = kind
        self._simulator_url = simulator_url
        self._made: tuple[str | None, Plan] | None = None

    def plan(self, host: str | None) -> Plan:
        """The plan for ``host`` (None: the scenario's own target); the target is asked anew when it has changed.

        Raises ``TargetError`` or ``InputError``.
        """
        if self._made is None or self._made[0] != host:
            scenario = self.scenario.with_target(url=host) if host else self.scenario
            simulator_url = None if host else self._simulator_url
            self._made = host, make_plan(scenario, self._kind, simulator_url=simulator_url)
        return self._made[1]


def make_plan(scenario: Scenario, kind: str | None = None, *, simulator_url: str | None = None) -> Plan:
    """Check the target, find its model and what words cost there. Raises ``TargetError`` or ``InputError``."""
    url = simulator_url or scenario.target.url
    if not url:
        raise InputError("no server named: give its URL with --host (-H), or target.url in the scenario")
    endpoint = Endpoint.parse(url)
    target = scenario.target
    headers = request_headers(endpoint, target)
    trace = _trace(scenario)
    model = find_model(endpoint, target, headers)
    counter = survey_scenario(scenario, counting_server(endpoint, target, headers, model), kind)
    listing = model_list(endpoint, target, headers)
    simulated = simulator_url is not None or is_simulated(listing)
    plan = Plan(scenario, url, model, counter, simulated, kind)
    server = prober(endpoint, target, headers, model)
    listed = listed_model(listing, model)
    require_room(plan.casting.traffic, counter, listed, server)
    if probe_wanted(scenario, kind):
        cache = probe_cache(server, counter, api=target.api)
        plan = replace(plan, cache=cache, isolation=_isolation(scenario, cache))
    _ = plan.casting.traffic, plan.notes()  # prompt files are read now, so that their mistakes show before any load
    plan = replace(plan, image_notes=[*_image_notes(plan.casting), *_trace_notes(trace, plan.casting, listed)])
    if plan.isolation is not None and plan.isolation.by == "nonce":
        plan.casting.require_room_for_nonce()
    _require_arrivals(plan)
    return plan


def _require_arrivals(plan: Plan) -> None:
    """Raise ``InputError`` where chance brings nobody within a level of an open loop."""
    for level in plan.levels:
        if level.arrivals is not None and not any(one.phase == Phase.MEASURED for one in plan.arrivals(level)):
            raise InputError(
                f"load.open: {level.label} for {level.duration_s:g} s brings no session at all with this seed; "
                "take a longer duration_s or a higher rate"
            )


def probe_wanted(scenario: Scenario, kind: str | None) -> bool:
    """Whether the run needs to know what the server's prefix cache does."""
    if scenario.cache_probe != "auto":
        return scenario.cache_probe == "always"
    return scenario.prefix_cache is not None or any(
        one.kind in REUSING and kind in (None, one.kind) for one in scenario.traffic
    )


def _image_notes(casting: Casting) -> list[str]:
    """Looks at the pictures, and tells where they will repeat. Raises ``InputError`` or ``ScenarioError``."""
    notes: list[str] = []
    for source, (sessions, pictures) in zip(casting.image_sources, casting.image_demand, strict=True):
        facts = check_images(source.images)
        shortage = source.shortage(facts, sessions, pictures)
        notes += [*facts.notes, *([shortage] if shortage else [])]
    return notes


def _trace(scenario: Scenario) -> Trace | None:
    """What is replayed, read now, so that its mistakes show before any load. Raises ``InputError``."""
    replay = None if scenario.load is None else scenario.load.replay
    return None if replay is None else read_trace(replay)


def _trace_notes(trace: Trace | None, casting: Casting, listed: dict[str, Any]) -> list[str]:
    """Tells which sessions are not played, or not as recorded. Raises ``TargetError`` where none has room."""
    if trace is None:
        return []
    found = (
        trace.unnamed_classes([one.name for one in casting.traffic]),
        require_room_for_trace(trace.sessions, listed),
    )
    return [*trace.notes(), *(note for note in found if note)]


def _isolation(scenario: Scenario, cache: CacheProbe) -> Isolation | None:
    """How the arms of a prefix-cache test are kept apart on this server. Raises ``TargetError`` where nothing does."""
    test = scenario.prefix_cache
    if test is None:
        return None
    by = test.isolate if test.isolate != "auto" else ("salt" if cache.salt == "isolates" else "nonce")
    if by == "salt" and cache.salt != "isolates":
        raise TargetError(
            f"prefix_cache.isolate: salt does not work here ({cache.line}); use nonce, or leave it to the probe"
        )
    return Isolation(by=by, cold=test.cold)
