"""Prompts are exact in the tokens of whatever server or tokenizer counts them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from word_server import WordServer

from tokenswarm.agent_material import AgentMaterial
from tokenswarm.counting import Server
from tokenswarm.errors import InputError, TargetError
from tokenswarm.prompts import survey_scenario
from tokenswarm.scenario import parse_scenario
from tokenswarm.survey import english_words, survey
from tokenswarm.tokenize_api import LlamaCppTokenize, SglangTokenize, UsageCounting, VllmTokenize
from tokenswarm.tokens import TokenCounter
from tokenswarm.traffic.agentic import AgentSession

LENGTHS = [1, 2, 3, 7, 8, 9, 16, 63, 64, 200, 777]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def counted(server: WordServer, **options: object) -> TokenCounter:
    return survey(Server(server.post, "m"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("speaks", "source"),
    [
        (("vllm", "usage"), "server"),
        (("llama.cpp", "usage"), "server"),
        (("sglang", "usage"), "server"),
        (("usage",), "calibrated"),
    ],
)
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_way_of_counting_gives_exact_prompts(speaks: tuple[str, ...], source: str, api: str) -> None:
    """Whatever an engine offers for counting, generated prompts have the asked length by its own count."""
    server = WordServer(*speaks)
    counter = counted(server, api=api)
    assert (counter.source, counter.exact, counter.note) == (source, True, "")
    for length in LENGTHS:
        text = counter.make_text(Random(length), length)
        assert server.count(user(text) if api == "chat" else text) == counter.overhead + length


def test_overheads_are_those_of_the_template() -> None:
    """The template's tokens are told apart from the text's: ``< user \\n … >`` and ``< assi stant \\n`` are eight."""
    counter = counted(WordServer("vllm"), systems=["be brief"])
    assert counter.overhead == 8
    assert counter.pair_overhead == 9  # one answer of one token is not counted: "< assi stant \n >" "< user \n >"
    assert counter.system_overheads == {"be brief": 8 + 4 + 2}  # "< system \n >" and two words
    assert counter.template_prefix == 3  # "< user \n"


def test_overheads_of_a_completion() -> None:
    """Plain text has no template; a further turn stands behind two line ends."""
    counter = counted(WordServer("vllm"), api="completions", systems=["be brief"])
    assert (counter.overhead, counter.pair_overhead) == (0, 2)
    assert counter.system_overheads == {"be brief": 2 + 2}


def test_server_tokenizer_needs_no_generation() -> None:
    """Where the server counts, no request reaches its model, so the first measured one is still its first."""
    server = WordServer("vllm", "usage")
    counted(server)
    assert {url for url, _ in server.asked} == {"/tokenize"}


@pytest.mark.parametrize("speaks", ["vllm", "usage"])
def test_questions_are_bounded(speaks: str) -> None:
    """A survey asks some sixty questions, not one a word."""
    server = WordServer(speaks)
    counter = counted(server, systems=["be brief"])
    assert len(server.asked) <= 75
    assert counter.calls <= 75


def test_words_are_those_that_cost_one_token() -> None:
    """With ids at hand every English word of up to six letters is found, and no longer one."""
    counter = counted(WordServer("vllm"))
    assert counter.words == [word for word in english_words() if len(word) <= 6]
    longer = [word for word in english_words() if len(word) > 6]
    assert counter.longer == [(word, 2 if len(word) <= 12 else 3) for word in longer]


def test_sifting_finds_only_one_token_words() -> None:
    """Without ids, groups are halved until longer words are out; what is kept costs one token each."""
    counter = counted(WordServer("usage"))
    assert len(counter.words) >= 64
    assert max(map(len, counter.words)) <= 6


def test_common_words_are_common() -> None:
    """About four words of ten are among the two dozen most frequent ones, as in English prose."""
    counter = counted(WordServer("vllm"))
    text = msgspec.structs.replace(counter, capitals=[]).make_text(Random(2), 5000).split()
    share = sum(word in english_words()[:24] for word in text) / len(text)
    assert 0.36 < share < 0.44


def test_text_reads_like_sentences() -> None:
    """Where full stops cost a token of their own, text has sentences with capitals and still the asked length."""
    text = counted(WordServer("vllm")).make_text(Random(1), 200)
    sentences = text.removesuffix(".").split(". ")
    assert len(sentences) > 5
    assert all(sentence[0].isupper() and sentence[1:].islower() for sentence in sentences)
    assert text.endswith(".")


def test_text_can_end_without_a_full_stop() -> None:
    """What a template puts behind a system prompt could melt with a stop: such text ends in a word, and is as long."""
    server = WordServer("vllm")
    counter = counted(server)
    for length in LENGTHS:
        for seed in range(20):
            text = counter.make_text(Random(seed), length, stop=False)
            assert text[-1].isalpha()
            assert server.count(user(text)) == counter.overhead + length


def test_few_one_token_words_are_mixed_with_longer_ones() -> None:
    """A small vocabulary is filled up with words of two and three tokens, to the token."""
    server = WordServer("vllm")
    counter = counted(server)
    few = msgspec.structs.replace(counter, words=["the", "of"], capitals=[])
    for length in LENGTHS:
        text = few.make_text(Random(length), length)
        assert server.count(user(text)) == counter.overhead + length
    assert any(word in dict(few.longer) for word in few.make_text(Random(1), 50).split())


def test_a_word_that_joins_others_is_left_out() -> None:
    """Where only "the" melts into the next word, it is not used and prompts stay exact."""
    server = WordServer("vllm", glue=r" the \w+")
    counter = counted(server)
    assert counter.exact
    assert "the" not in counter.words
    assert server.count(user(counter.make_text(Random(9), 500))) == counter.overhead + 500


def test_counts_that_do_not_add_up_are_marked() -> None:
    """A tokenizer that joins words makes the result approximate, with a reason, instead of silently wrong."""
    counter = counted(WordServer("vllm", glue=r" \w+e t\w+"))
    assert not counter.exact
    assert "not the sum" in counter.note


def test_nothing_to_ask_is_approximate_and_says_why() -> None:
    """Without any way to count, prompts are still made, and the note names what failed."""
    counter = counted(WordServer())
    assert (counter.source, counter.exact) == ("approximate", False)
    assert "/v1/chat/completions: HTTP 404" in counter.note
    assert len(counter.make_text(Random(1), 300).split()) == 300


def test_refusal_in_the_middle_is_approximate() -> None:
    """A server that answers short questions and refuses longer ones does not stop the run."""
    counter = counted(WordServer("usage", longest=30))
    assert counter.source == "approximate"
    assert "404" in counter.note


def test_small_context_is_surveyed_in_small_groups() -> None:
    """A server that takes no more than 300 tokens at once cannot show ids for 200 words and is exact all the same."""
    server = WordServer("vllm", longest=300)
    counter = counted(server)
    assert counter.exact
    assert server.count(user(counter.make_text(Random(5), 222))) == counter.overhead + 222


def test_template_fields_of_the_scenario_reach_the_template() -> None:
    """``chat_template_kwargs`` changes what a template adds, so it is sent with each count; a seed is not."""
    server = WordServer("vllm")
    fields = {"chat_template_kwargs": {"enable_thinking": False}, "seed": 3}
    survey(Server(server.post, "m", request=fields))
    chats = [body for _, body in server.asked if "messages" in body]
    assert chats
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} and "seed" not in body for body in chats)


def test_random_text_is_exact_and_from_the_vocabulary() -> None:
    """Random chat text comes from pieces of the vocabulary, English or not; random ids are the server's."""
    server = WordServer("vllm")
    strange = ["zyx", "qqq", "wvut", "nmlk", "hgfd"]
    server.ids(" " + " ".join(strange))
    counter = counted(server, random=True)
    assert counter.exact
    assert set(strange) <= set(counter.random_words)
    for length in LENGTHS:
        assert server.count(user(counter.make_random_text(Random(length), length))) == counter.overhead + length
    ids = counter.make_ids(Random(3), 100)
    assert len(ids) == 100
    assert set(ids) <= set(server.vocabulary.values())


def test_counter_travels_as_plain_data() -> None:
    """What one process surveyed, another gets as JSON, and makes the same prompts from it."""
    counter = counted(WordServer("vllm"), systems=["be brief"])
    other = msgspec.json.decode(msgspec.json.encode(counter), type=TokenCounter)
    assert other == counter
    assert other.make_text(Random(4), 90) == counter.make_text(Random(4), 90)


def test_making_a_prompt_is_cheap() -> None:
    """A prompt of 512 tokens takes less than 150 µs, so that it does not stall other streams of the loop."""
    counter = counted(WordServer("vllm"))
    rng = Random(1)
    counter.make_text(rng, 512)
    took_s = []
    for _ in range(100):
        begun = time.perf_counter()
        counter.make_text(rng, 512)
        took_s.append(time.perf_counter() - begun)
    assert min(took_s) < 150e-6


STORY = "Hello there, tell me a story about a load test."
RENDERED = f"<|im_start|>user\n{STORY}<|im_end|>\n<|im_start|>assistant\n<think>\n"
VLLM_IDS = [4083, 1512, 198, 2701, 333, 1414, 11, 3370, 446, 267, 359, 1782, 2259, 267, 1555, 989, 13, 4084, 198]
VLLM_IDS += [4083, 3415, 634, 853, 198]


def test_answers_recorded_from_vllm_and_sglang() -> None:
    """vLLM 0.32's chat count is the 24 tokens its usage reported for the same message; SGLang counts text alone."""

    def post(url: str, body: dict[str, Any]) -> Any:
        assert url == "http://h/tokenize"
        if "messages" in body:
            return {"count": 24, "max_model_len": 4096, "tokens": VLLM_IDS, "token_strs": None}
        return {"tokens": [2701, 333, 1414], "count": 3, "max_model_len": 32768}

    server = Server(post, "tiny", root="http://h")
    assert VllmTokenize(server).count(user(STORY)) == 24
    assert VllmTokenize(server).prompt_ids(user(STORY)) == VLLM_IDS
    assert SglangTokenize(server).count("Hello there") == 3
    assert SglangTokenize(server).ids("Hello there") == [2701, 333, 1414]


TOOL = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("speaks", "url", "choice"),
    [("vllm", "/tokenize", None), ("llama.cpp", "/apply-template", "none"), ("usage", "/v1/chat/completions", "none")],
)
def test_tools_are_counted_as_the_request_offers_them(speaks: str, url: str, choice: str | None) -> None:
    """Tools go along with every count; where the answer depends on it, ``tool_choice`` too; the scenario's own win."""
    server = WordServer(speaks)
    ways: dict[str, Any] = {"vllm": VllmTokenize, "llama.cpp": LlamaCppTokenize, "usage": UsageCounting}
    offered = {"tools": [TOOL], "tool_choice": "none"}
    ways[speaks](Server(server.post, "m")).with_fields(offered).count(user("The"))
    bodies = [body for asked, body in server.asked if asked == url]
    assert [body["tools"] for body in bodies] == [[TOOL]]
    assert [body.get("tool_choice") for body in bodies] == [choice]
    own = Server(server.post, "m", request={"tools": []})
    ways[speaks](own).with_fields(offered).count(user("The"))
    assert [body["tools"] for asked, body in server.asked if asked == url] == [[TOOL], []]


def test_answers_recorded_from_llama_cpp() -> None:
    """llama.cpp renders the chat in one answer and gives the ids of that text in another."""

    def post(url: str, body: dict[str, Any]) -> Any:
        if url == "/apply-template":
            return {"prompt": RENDERED}
        assert (url, body["content"], body["add_special"], body["parse_special"]) == ("/tokenize", RENDERED, True, True)
        return {"tokens": [*VLLM_IDS, 4094, 198]}

    assert LlamaCppTokenize(Server(post, "tiny")).count(user(STORY)) == 26


@pytest.fixture(scope="module")
def simulator_url() -> Iterator[str]:
    """A simulated engine in a process of its own."""
    command = [sys.executable, "-m", "simulator", "--port", "0", "--speed", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
        process.terminate()


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """JSON in, JSON out, over a socket."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise TargetError(f"{url}: HTTP {error.code}") from error


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_prompts_are_exact_by_the_usage_of_a_real_server(simulator_url: str, api: str) -> None:
    """Over a real socket, ``usage.prompt_tokens`` is the asked length, for words and for random text."""
    model = ask(simulator_url + "/v1/models")["data"][0]["id"]
    paths = {"root": simulator_url, "chat": simulator_url + "/v1/chat/completions"}
    server = Server(ask, model, **paths, completions=simulator_url + "/v1/completions")
    counter = survey(server, api=api, random=True)
    assert (counter.source, counter.exact) == ("server", True)
    usage = UsageCounting(server)
    for length in (1, 20, 333):
        for text in (counter.make_text(Random(length), length), counter.make_random_text(Random(length), length)):
            assert usage.count(user(text) if api == "chat" else text) == counter.overhead + length


TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[end]{% endfor %}[assistant]"


def _train(folder: Path, sentencepiece: bool) -> None:
    """A tokenizer of 1,500 tokens: byte-level like GPT-2's and Qwen's, or with ``▁`` like Llama 2's."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    specials = [AddedToken(text, special=True, normalized=False) for text in ("<s>", "[user]", "[system]", "[end]")]
    specials.append(AddedToken("[assistant]", special=True, normalized=False))
    corpus = [" ".join(english_words()[start::7]) + ".\n" for start in range(7)] * 3
    if sentencepiece:
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=None))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        bytes_too = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(
            vocab_size=1500, show_progress=False, special_tokens=bytes_too, max_token_length=12
        )
        corpus = [word for line in corpus for word in line.split()]
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(specials)
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "chat_template": TEMPLATE})
    )


@pytest.mark.slow
@pytest.mark.parametrize("sentencepiece", [False, True])
def test_local_tokenizer_against_the_tokenizers_library(tmp_path: Path, sentencepiece: bool) -> None:
    """With a named tokenizer, chats rendered by hand and counted by the tokenizers library have the asked length."""
    from tokenizers import Tokenizer

    folder = tmp_path / "tokenizer"
    _train(folder, sentencepiece)
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def count(text: str, system: str = "") -> int:
        whole = f"<s>{system}[user]{text}[end][assistant]"
        return len(raw.encode(whole, add_special_tokens=False).ids)

    def never(url: str, body: object) -> None:
        raise AssertionError("a local tokenizer must not ask the server")

    counter = survey(Server(never, "m"), tokenizer=str(folder), systems=["be brief"], random=True)
    assert (counter.source, counter.exact) == ("tokenizer", True)
    assert len(counter.random_words) > 50
    for length in LENGTHS:
        text = counter.make_text(Random(length), length)
        assert count(text) == counter.overhead + length
        assert count(text, "[system]be brief[end]") == counter.prompt_overhead("be brief") + length
        assert count(counter.make_random_text(Random(length), length)) == counter.overhead + length


TOOLS_TEMPLATE = (
    "{{ bos_token }}{% if tools %}[system]{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "{% for tool in tools %}{{ tool.function.name }};{% endfor %}[end]{% endif %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}[assistant]"
)


@pytest.mark.slow
def test_local_tokenizer_renders_the_tools_of_an_agent(tmp_path: Path) -> None:
    """First prompts of jobs, rendered by hand and counted by the tokenizers library, have the computed length."""
    from tokenizers import Tokenizer

    folder = tmp_path / "tokenizer"
    _train(folder, sentencepiece=False)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TOOLS_TEMPLATE}))
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    agent = {"kind": "agentic", "system_prompt": {"tokens": 200}, "task_tokens": {"uniform": [1, 90]}}
    scenario = parse_scenario(json.dumps({"target": {"tokenizer": str(folder)}, "traffic": [agent]}))
    counter = survey_scenario(scenario, Server(WordServer().post, "m"))
    assert (counter.source, counter.exact) == ("tokenizer", True)
    material = AgentMaterial(scenario.traffic[0], counter)  # type: ignore[arg-type]
    rendered: list[list[int]] = []
    told = set()
    for ticket in range(10):
        turn = AgentSession(material, Random(ticket), Random(ticket), ordinal=ticket, level=0).next()
        assert turn is not None
        assert turn.messages is not None
        system, task = (message["content"] for message in turn.messages)
        names = "".join(f"{tool['function']['name']};" for tool in turn.tools or [])
        whole = f"<s>[system]{system}\n\n{names}[end][user]{task}[end][assistant]"
        rendered.append(raw.encode(whole, add_special_tokens=False).ids)
        assert len(rendered[-1]) == turn.input_tokens
        told.add(turn.prefix_tokens)
    shared = next(at for at, pair in enumerate(zip(*rendered[:2], strict=False)) if pair[0] != pair[1])
    assert told == {shared}


@pytest.mark.slow
def test_unusable_tokenizers_are_one_line(tmp_path: Path) -> None:
    """A missing folder, and a tokenizer without a chat template, are refused by name before any load."""
    server = Server(WordServer("vllm").post, "m")
    with pytest.raises(InputError, match=r"^target\.tokenizer: '.*nowhere' cannot be loaded; [^\n]*$"):
        survey(server, tokenizer=str(tmp_path / "nowhere"))
    _train(tmp_path / "plain", sentencepiece=False)
    (tmp_path / "plain" / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"^target\.tokenizer: [^\n]*chat.template[^\n]*$"):
        survey(server, tokenizer=str(tmp_path / "plain"))
