"""A chat session keeps its history, its lengths and its chance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from word_server import WordServer

from tokenswarm.counting import Server
from tokenswarm.prompts import Material, session_rng
from tokenswarm.records import SessionEnd
from tokenswarm.survey import survey
from tokenswarm.traffic.chat import ChatSession
from tokenswarm.traffic.session import Answer
from tokenswarm.traffic.turn import Turn
from tokenswarm.traffic_settings import ChatTraffic, PromptFile

MIXED = {
    "turns": {"uniform": [2, 5]},
    "input_tokens": {"uniform": [20, 200]},
    "output_tokens": {"lognormal": {"median": 50, "sigma": 0.8}},
    "think_time_s": {"exponential": 3},
}


def session(server: WordServer, ticket: int = 0, api: str = "chat", **traffic: Any) -> ChatSession:
    chat = ChatTraffic.model_validate(traffic)
    systems = [chat.system_prompt] if chat.system_prompt else []
    counter = survey(Server(server.post, "m"), api=api, systems=systems, random=chat.prompts == "random_ids")
    return ChatSession(chat, Material(chat, counter, api=api), session_rng(7, 0, "measured", ticket), ticket)


def played(chat: ChatSession, answer: str) -> list[Turn]:
    turns = []
    while (turn := chat.next()) is not None:
        turns.append(turn)
        chat.hear(Answer(answer))
    return turns


def test_history_holds_the_real_answers() -> None:
    """Each request carries all earlier messages, with the answers the model gave, and is not changed by later turns."""
    chat = session(WordServer("vllm"), turns=3, system_prompt="be brief")
    first = chat.next()
    assert chat.hear(Answer("first answer")).end is None
    second = chat.next()
    assert chat.hear(Answer("second answer")).end is None
    third = chat.next()
    assert chat.hear(Answer("third answer")).end == SessionEnd.DONE
    assert first
    assert first.messages
    assert second
    assert second.messages
    assert third
    assert third.messages
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert second.messages[:2] == first.messages
    assert second.messages[2] == {"role": "assistant", "content": "first answer"}
    assert third.messages[:4] == second.messages
    assert [m["content"] for m in third.messages if m["role"] == "assistant"] == ["first answer", "second answer"]
    assert chat.next() is None


def test_lengths_are_exact_over_all_turns() -> None:
    """By the server's count, a turn's prompt is the one before, the answer, and the asked addition."""
    server = WordServer("vllm")
    for ticket in range(5):
        turns = played(session(server, ticket, **MIXED), "so it is")
        assert 2 <= len(turns) <= 5
        counts = [server.count(turn.messages or []) for turn in turns]
        assert counts[0] == turns[0].input_tokens
        for before, after, turn in zip(counts, counts[1:], turns[1:], strict=False):
            assert after == before + 3 + (turn.input_tokens or 0)


def test_same_ticket_same_work_whatever_the_answers() -> None:
    """Questions, lengths and pauses come from the ticket alone; what the model says does not change them."""
    one = played(session(WordServer("vllm"), 5, **MIXED), "yes")
    two = played(session(WordServer("vllm"), 5, **MIXED), "no, and here is a long story about it")
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        assert (left.max_tokens, left.input_tokens, left.pause_s) == (
            right.max_tokens,
            right.input_tokens,
            right.pause_s,
        )
        assert left.messages
        assert right.messages
        assert left.messages[-1] == right.messages[-1]


def test_thinking_comes_before_later_turns_only() -> None:
    """A session begins at once; each further question is thought about."""
    turns = played(session(WordServer("vllm"), turns=3, think_time_s=2.5), "yes")
    assert [turn.pause_s for turn in turns] == [0, 2.5, 2.5]


def test_an_empty_answer_is_one() -> None:
    """A model that said nothing is asked the next question; what stands in the history is its silence."""
    chat = session(WordServer("vllm"), turns=2)
    chat.next()
    heard = chat.hear(Answer(""))
    assert (heard.end, heard.divergence, heard.malformed_calls) == (None, None, None)
    turn = chat.next()
    assert turn
    assert turn.messages
    assert turn.messages[1] == {"role": "assistant", "content": ""}


def test_asked_output_and_ignore_eos_are_the_scenarios() -> None:
    """The turn carries the length asked of the model and whether its end may be ignored."""
    turn = session(WordServer("vllm"), output_tokens=77, ignore_eos=False).next()
    assert turn
    assert (turn.max_tokens, turn.ignore_eos) == (77, False)


def test_completion_continues_the_text() -> None:
    """With the completions API the history is one text, and its first prompt has the asked length."""
    server = WordServer("vllm")
    chat = session(server, api="completions", turns=2, input_tokens=40)
    first = chat.next()
    chat.hear(Answer(" and so on"))
    second = chat.next()
    assert first
    assert isinstance(first.prompt, str)
    assert second
    assert isinstance(second.prompt, str)
    assert server.count(first.prompt) == first.input_tokens == 40
    assert second.prompt.startswith(first.prompt + " and so on\n\n")
    assert server.count(second.prompt) == 40 + 3 + 40
    assert first.messages is None


def test_random_ids_of_a_completion_are_ids() -> None:
    """Random ids go to the completions API as they are, as many as asked for."""
    turn = session(WordServer("vllm"), api="completions", prompts="random_ids", input_tokens=33).next()
    assert turn
    assert isinstance(turn.prompt, list)
    assert len(turn.prompt) == turn.input_tokens == 33


@pytest.mark.parametrize(("api", "turns"), [("chat", 1), ("chat", 2), ("completions", 2)])
def test_random_ids_with_a_history_are_exact_text(api: str, turns: int) -> None:
    """Where ids cannot be sent, or an answer must stand between them, random text of the same length is."""
    server = WordServer("vllm")
    asked = played(session(server, api=api, prompts="random_ids", turns=turns, input_tokens=60), " yes")
    assert len(asked) == turns
    assert server.count(asked[0].messages or str(asked[0].prompt)) == 60


def test_conversation_of_a_file_plays_its_own_turns(tmp_path: Path) -> None:
    """A file's talk has as many turns as its user speaks, its own system message, and no chosen length."""
    talk = [{"role": "system", "content": "own"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"messages": talk}) + "\n")
    chat = ChatTraffic(prompts=PromptFile(file=str(path)), turns={"fixed": 7}, system_prompt="theirs")
    counter = survey(Server(WordServer().post, "m"))
    turns = played(ChatSession(chat, Material(chat, counter), session_rng(7, 0, "measured", 0), 0), "x")
    assert [turn.input_tokens for turn in turns] == [None, None]
    assert turns[1].messages == [
        {"role": "system", "content": "own"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "b"},
    ]
