"""Prompts of replayed sessions: the trace's lengths to the token, and shared text exactly as far as it is shared."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from word_server import WordServer

from tokenswarm.casting import Casting
from tokenswarm.counting import Server
from tokenswarm.records import Phase, SessionEnd
from tokenswarm.scenario import parse_scenario
from tokenswarm.schedule import Level, Ticket
from tokenswarm.survey import survey
from tokenswarm.tokens import TokenCounter
from tokenswarm.trace import SharedText, TraceSession, TraceTurn
from tokenswarm.trace_material import TraceMaterial
from tokenswarm.traffic.session import Answer
from tokenswarm.traffic.trace import RecordedSession
from tokenswarm.traffic.turn import Turn
from tokenswarm.traffic_settings import TraceTraffic

TRAFFIC = TraceTraffic(kind="trace")


def recorded(*turns: int, shared: str = "", output: int = 9) -> TraceSession:
    """A session whose turns have so many tokens; ``shared`` as ``name:tokens name:tokens``."""
    pieces = tuple(SharedText(name, int(tokens)) for name, tokens in (item.split(":") for item in shared.split()))
    return TraceSession(0.0, tuple(TraceTurn(tokens, output, 1.5) for tokens in turns), pieces, prefix=shared or None)


class Bench:
    """A server that counts, and the sessions played on it."""

    def __init__(self, api: str = "chat", **how: Any) -> None:
        self.server = WordServer("vllm", **how)
        self.api = api
        counter = survey(Server(self.server.post, "m"), api=api)
        self.material = TraceMaterial(counter, seed=7, run="r1", api=api)

    def session(self, session: TraceSession, seed: int = 0) -> RecordedSession:
        return RecordedSession(TRAFFIC, self.material, session, Random(seed))

    def first(self, session: TraceSession, seed: int = 0) -> Turn:
        turn = self.session(session, seed).next()
        assert turn is not None
        return turn

    def ids(self, turn: Turn) -> list[int]:
        """Tokens of the prompt as the server sees it."""
        return self.server.ids(turn.prompt if isinstance(turn.prompt, str) else self.server.rendered(turn.messages))


def alike(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize(
    "session",
    [
        recorded(40),
        recorded(3000),
        recorded(768, shared="0:512"),
        recorded(1024, shared="0:512 1:512"),  # shared to its end
        recorded(5000, shared="a:7 b:1 c:1300 d:2"),
        recorded(30, shared="a:2 b:2 c:2"),
    ],
)
def test_a_first_prompt_has_the_length_of_the_trace(session: TraceSession, api: str) -> None:
    """Template, shared pieces and own words together, counted by the server."""
    bench = Bench(api)
    turn = bench.first(session)
    assert len(bench.ids(turn)) == turn.input_tokens == session.turns[0].input_tokens


def test_the_template_takes_what_it_needs() -> None:
    """A prompt shorter than the template and one word is one word, and says so."""
    bench = Bench()
    turn = bench.first(recorded(1))
    assert len(bench.ids(turn)) == turn.input_tokens == bench.material.counter.overhead + 1


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_sessions_share_exactly_what_the_trace_says(api: str) -> None:
    """Blocks end where they end in the trace, template included: 512 tokens for one equal block, 1,024 for two; the
    rest of a block that only one of them has, and own words, differ."""
    bench = Bench(api)
    prompts = [
        bench.ids(bench.first(recorded(2000, shared=shared), seed))
        for seed, shared in enumerate(["0:512 1:512 2:512", "0:512 1:512 3:512", "0:512", "9:512", ""])
    ]
    assert 1024 <= alike(prompts[0], prompts[1]) <= 1027  # two texts may go on with the same words by chance
    assert 512 <= alike(prompts[0], prompts[2]) <= 515
    head = bench.material.counter.template_prefix
    assert head is not None
    for other in prompts[3:]:
        assert head <= alike(prompts[0], other) <= head + 3


def test_a_shorter_piece_is_the_beginning_of_a_longer_one() -> None:
    """The last block of a prompt may be cut: what is there is what the whole block has."""
    bench = Bench()
    whole, cut = recorded(2000, shared="0:512 1:512"), recorded(600, shared="0:512 1:88")
    after = bench.material.counter.overhead - bench.material.counter.template_prefix  # template behind the text
    same = alike(bench.ids(bench.first(whole)), bench.ids(bench.first(cut)))
    assert 600 - after - 1 <= same <= 600 - after


def test_the_record_tells_how_much_is_shared() -> None:
    """All pieces; less by the template's end where they reach to the end of the prompt; nothing without any."""
    bench = Bench()
    after = bench.material.counter.overhead - bench.material.counter.template_prefix
    told = [bench.first(recorded(1024, shared=shared)).prefix_tokens for shared in ("0:512", "0:512 1:512", "")]
    assert told == [512, 1024 - after, None]


def test_without_token_ids_the_record_promises_no_more_than_is_certain() -> None:
    """A server that only counts does not tell what of its template comes first."""
    server = WordServer("usage")
    material = TraceMaterial(survey(Server(server.post, "m")), seed=7, run="r1", api="chat")
    assert material.counter.template_prefix is None
    first, second = (
        server.ids(server.rendered(RecordedSession(TRAFFIC, material, session, Random(seed)).next().messages))
        for seed, session in enumerate([recorded(1500, shared="0:512 1:512"), recorded(1300, shared="0:512 1:512")])
    )
    assert (len(first), len(second)) == (1500, 1300)
    told = material.prefix_tokens(recorded(1500, shared="0:512 1:512"))
    assert told is not None
    assert 1024 - 2 * material.counter.overhead <= told <= alike(first, second)


def test_text_depends_on_run_seed_and_name_only() -> None:
    """Another process of the run makes the same text, another run or seed another one; own words come from the
    session's own generator."""
    bench, again = Bench(), Bench()
    session = recorded(900, shared="0:512")
    texts = [bench.first(session).messages, again.first(session).messages]
    assert texts[0] == texts[1]
    assert bench.first(session, 1).messages != texts[0]
    counter = bench.material.counter
    for change in ({"seed": 8}, {"run": "r2"}):
        other = TraceMaterial(counter, **{"seed": 7, "run": "r1", "api": "chat"} | change)
        turn = RecordedSession(TRAFFIC, other, session, Random(0)).next()
        assert turn is not None
        assert alike(bench.ids(turn), bench.ids(bench.first(session))) <= counter.template_prefix + 3


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_turns_pauses_and_history(api: str) -> None:
    """Each later prompt has the earlier ones and the real answers in it and is longer by what the trace says."""
    bench = Bench(api)
    session = bench.session(recorded(300, 50, 80, shared="0:200", output=11))
    turns, ends, counts = [], [], []
    while (turn := session.next()) is not None:
        turns.append(turn)
        counts.append(len(bench.ids(turn)))
        ends.append(session.hear(Answer("so it is said")).end)
    assert [turn.pause_s for turn in turns] == [0.0, 1.5, 1.5]
    assert [turn.max_tokens for turn in turns] == [11, 11, 11]
    assert [turn.input_tokens for turn in turns] == [300, 50, 80]
    assert ends == [None, None, SessionEnd.DONE]
    answer = 4  # tokens of what the model said
    slack = 2 if api == "completions" else 0  # an answer may join with the line ends around it
    assert counts[0] == 300
    assert counts[1] == pytest.approx(300 + answer + 50, abs=slack)
    assert counts[2] == pytest.approx(counts[1] + answer + 80, abs=slack)
    assert all(turn.prefix_tokens == 200 for turn in turns)


def test_a_vocabulary_of_few_short_words() -> None:
    """Where words of several tokens are mixed in, pieces still have their length and shorter ones are beginnings."""
    longer = [(f"w{'abcdefghij'[n]}{'abcdefghij'[m]}", 2 + (n + m) % 2) for n in range(10) for m in range(10)]
    counter = TokenCounter(
        source="server", exact=True, overhead=5, template_prefix=3, heads=["A"], words=["b", "c"], longer=longer
    )
    costs = dict(longer)
    material = TraceMaterial(counter, seed=7, run="r", api="chat")
    texts = [
        material.first_prompt(recorded(1500, shared=f"0:512 1:{tokens}"), Random(1))[0].split(" ")
        for tokens in (512, 500, 33)
    ]
    for words in texts:
        assert sum(costs.get(word, 1) for word in words) == 1500 - 5
    for words, tokens in ((texts[1], 500), (texts[2], 33)):
        same = next(at for at, pair in enumerate(zip(words, texts[0], strict=False)) if pair[0] != pair[1])
        shared = sum(costs.get(word, 1) for word in words[:same])
        assert shared >= 512 - 3 + tokens - 3  # the template's head, and part of the last word


@pytest.mark.parametrize(("named", "played"), [("b", "b"), ("a", "a"), ("other", "a"), (None, "a")])
def test_the_trace_chooses_the_class(named: str | None, played: str, tmp_path: Path) -> None:
    """A session is of the class that the trace names, else of the first one, whatever its number."""
    (tmp_path / "t.jsonl").touch()
    text = "traffic: [{kind: trace, name: a}, {kind: trace, name: b}]\nload: {replay: {trace: t.jsonl}}"
    scenario = parse_scenario(text, folder=tmp_path)
    casting = Casting(scenario, None, Bench().material.counter, (), "r1")
    level = Level(0, 4, replayed=True)
    for number in (0, 1, 2):
        ticket = Ticket(level, Phase.MEASURED, number, 0.0, recorded=TraceSession(0.0, (TraceTurn(90, 5),), (), named))
        traffic, session = casting.session(ticket)
        assert (traffic.name, casting.traffic_of(ticket).name) == (played, played)
        turn = session.next()
        assert turn is not None
        assert (turn.input_tokens, turn.max_tokens) == (90, 5)
