"""What the users of a process record: names of sessions, and arrivals that were never sent.

In a process of its own: Locust patches sockets on import.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenswarm.rundir import HEADERS

ROOT = Path(__file__).parents[2]
CODE = """\
import json
from types import SimpleNamespace

from tokenswarm.client import Exchange
from tokenswarm.gate import Gate
from tokenswarm.plan import Plan
from tokenswarm.recorder import LocustStatistics, Recorder
from tokenswarm.records import Phase
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import Level, Ticket
from tokenswarm.tokens import TokenCounter
from tokenswarm.users import Instrument

counter = TokenCounter(source="server", exact=True, heads=["The"], words=[f" w{i}" for i in range(200)])
text = '''
traffic: [{name: chat, weight: 3}, {name: documents, weight: 1}]
load: {open: {requests_per_s: [2, 4], duration_s: 5, max_users: 7}}
'''
plan = Plan(parse_scenario(text), "http://127.0.0.1:1", "m", counter, simulated=False, run="one")
gate, files, fired = Gate(plan.levels, 0), {}, []
environment = SimpleNamespace(
    events=SimpleNamespace(request=SimpleNamespace(fire=lambda **event: fired.append(event))), stats=None
)
recorder = Recorder("w3", lambda file, lines: files.setdefault(file, []).append(lines), 1000.0)
instrument = Instrument("run", "w3", plan, gate, recorder, LocustStatistics(environment))
first, closed = plan.levels[0], Level(index=2, concurrency=5, sessions=9, label="c=5")

instrument.refuse(Ticket(plan.levels[1], Phase.MEASURED, 40, 0.0, due_s=123.25))
instrument.refuse(Ticket(first, Phase.WARMUP, 3, 0.0, due_s=99.5, again=1))
exchange = Exchange(sent_s=10.0, finished_s=11.0)
instrument.running_users = 6
records = [
    instrument.record(ticket, exchange, "chat", scheduled_s=9.0)
    for ticket in (
        Ticket(closed, Phase.MEASURED, 8, 0.0),
        Ticket(closed, Phase.MEASURED, 8, 0.0, again=2),
        Ticket(first, Phase.MEASURED, 8, 0.0, due_s=9.0, again=1),
        Ticket(None, Phase.MEASURED, 8, 0.0),
    )
]
recorder.close()
print(json.dumps({
    "files": {name: "".join(lines) for name, lines in files.items()},
    "sessions": [record.session for record in records],
    "concurrency": [record.concurrency for record in records],
    "classes": [plan.casting.traffic_of(Ticket(level, phase, number, 0.0)).name
                for level, phase, number in ((plan.levels[1], Phase.MEASURED, 40), (first, Phase.WARMUP, 3))],
    "fired": [[event["name"], event["exception"], event["response_time"]] for event in fired],
}))
"""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What two refused arrivals and four requests leave behind."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_an_arrival_that_was_not_admitted_is_a_request_that_was_never_sent(recorded: dict[str, Any]) -> None:
    """When it should have been sent is known; it has no other time, and no concurrency, which nobody set."""
    lines = io.StringIO(recorded["files"]["requests"])
    rows = list(csv.DictReader(lines, fieldnames=HEADERS["requests"]))
    told = ("level", "phase", "ticket", "worker", "session", "scheduled_s", "error_kind")
    assert [{column: row[column] for column in told} for row in rows] == [
        {
            "level": "1", "phase": "measured", "ticket": "40", "worker": "w3", "session": "1.measured.40",
            "scheduled_s": "123.250000", "error_kind": "not_admitted",
        },
        {
            "level": "0", "phase": "warmup", "ticket": "3", "worker": "w3", "session": "0.warmup.3.1",
            "scheduled_s": "99.500000", "error_kind": "not_admitted",
        },
    ]  # fmt: skip
    for row in rows:
        unknown = ("concurrency", "sent_s", "headers_s", "first_token_s", "finished_s", "output_tokens", "http_status")
        assert {row[column] for column in unknown} == {""}
    assert [row["traffic"] for row in rows] == recorded["classes"]
    assert set(recorded["files"]) == {"requests"}, "nothing was in flight, and no token came"


def test_locust_counts_an_arrival_that_was_not_admitted_as_a_failure(recorded: dict[str, Any]) -> None:
    """Without a response time, under its class and level."""
    names = [f"{recorded['classes'][0]} 4/s", f"{recorded['classes'][1]} 2/s warmup"]
    assert recorded["fired"] == [[name, "not_admitted", None] for name in names]


def test_a_session_that_another_worker_had_begun_has_a_name_of_its_own(recorded: dict[str, Any]) -> None:
    """How often its ticket was taken back is added, so that both rows of one ticket are not one session."""
    assert recorded["sessions"] == ["2.measured.8", "2.measured.8.2", "0.measured.8.1", ".measured.8"]


def test_concurrency_is_what_was_set(recorded: dict[str, Any]) -> None:
    """The level's in a closed loop, all running users where there are no levels, and nothing by the clock."""
    assert recorded["concurrency"] == [5, 5, None, 6]
