"""The cache probe, on a cache that can be worked out by hand, on recorded answers and on the simulator."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from caching_server import CachingServer

from tests.contract.replay import Replay, plain
from tests.simulator.sim_process import running_simulator
from tokenswarm import cached_tokens
from tokenswarm.cache_probe import CacheProbe, block_sizes, probe_cache
from tokenswarm.cached_tokens import Seen, seen_in
from tokenswarm.counting import Server
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import TargetError
from tokenswarm.scenario import Target
from tokenswarm.survey import survey
from tokenswarm.target import counting_server, prober
from tokenswarm.tokens import TokenCounter

CAPTURES = Path(__file__).parents[1] / "contract" / "captures"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A made-up server needs no time between two requests."""
    if "simulator" not in request.node.name:
        monkeypatch.setattr(cached_tokens, "SETTLE_S", 0.0)
        monkeypatch.setattr(cached_tokens, "_BUSY_S", 0.0)


def counter_of(server: CachingServer, api: str = "chat") -> TokenCounter:
    return survey(Server(server.words.post, "m"), api=api)


def probed(server: CachingServer, api: str = "chat", most: int = 12) -> CacheProbe:
    """The probe's findings, and at most so many requests for them."""
    found = probe_cache(server.prober(), counter_of(server, api), api=api)
    assert len(server.asked) <= most
    assert "\n" not in found.line
    assert found.line.startswith(("on,", "enabled but inert", "off", "unknown"))
    return found


@pytest.mark.parametrize("block", [1, 16, 32, 128, 544])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_cache_that_works(block: int, api: str) -> None:
    """On, the block size by the tokens found, salt and nonce isolate, in eight requests."""
    found = probed(CachingServer(block=block), api, most=8)
    size = "to the token" if block == 1 else f"blocks of {block} tokens"
    assert found == CacheProbe(
        state="on",
        block_tokens=block,
        salt="isolates",
        nonce_isolates=True,
        reports_cached_tokens=True,
        flag=None,
        line=f"on, {size}, cache_salt isolates, a nonce isolates, cached_tokens reported",
    )


def test_what_is_sent() -> None:
    """One prompt without a salt, with one twice, with another, behind a nonce; then one as long as what was found."""
    server = CachingServer(block=32)
    found = probe_cache(server.prober(temperature=0, stream=True, stream_options={"a": 1}), counter_of(server))
    assert found.block_tokens == 32
    texts = [body["messages"][0]["content"] for body in server.asked]
    salts = [body.get("cache_salt") for body in server.asked]
    assert texts[0] == texts[1] == texts[2] == texts[3] == texts[4] != texts[6] == texts[7]
    assert texts[5].endswith(texts[0])
    assert len(texts[5]) > len(texts[0])
    assert salts[2] == salts[3] != salts[4]
    assert [salt for number, salt in enumerate(salts) if number not in (2, 3, 4)] == [None] * 5
    lengths = [server.words.count(body["messages"]) for body in server.asked]
    assert lengths[:2] == [1281, 1281]
    assert lengths[6:] == [1280, 1280]
    assert all(body["temperature"] == 0 and "stream_options" not in body for body in server.asked)


@pytest.mark.parametrize("block", [16, 32, 100, 300])
def test_block_size_with_a_draft_model(block: int) -> None:
    """vLLM computes one more block again with speculative decoding: the doubt is seen, and a token more decides."""
    assert probed(CachingServer(block=block, dropped=1)).block_tokens == block


@pytest.mark.parametrize(("enabled", "block"), [(None, None), (True, 544)])
def test_block_size_with_a_draft_model_and_two_blocks(enabled: bool | None, block: int | None) -> None:
    """Of two blocks one is dropped: shorter prompts show nothing, and only the engine can tell."""
    assert probed(CachingServer(block=544, dropped=1, page="vllm", enabled=enabled)).block_tokens == block


def test_block_size_that_the_engine_confirms() -> None:
    """Half a block and more is left over of 1280 tokens: the page's own number spares two requests."""
    assert 1280 % 700 > 350
    server = CachingServer(block=700, page="vllm", enabled=True)
    assert probed(server, most=9).block_tokens == 700


def test_llamacpp_ignores_the_salt() -> None:
    """All but one token found, whatever the salt; the nonce isolates though every prompt begins with the template."""
    server = CachingServer(block=1, salt="ignored", tells="timings", page="llamacpp")
    found = probed(server, most=8)
    assert (found.state, found.block_tokens, found.salt, found.nonce_isolates) == ("on", 1, "ignored", True)
    assert found.line == ("on, to the token, cache_salt is ignored, a nonce isolates, cached_tokens reported")


def test_a_server_that_refuses_the_salt() -> None:
    """400 for the unknown argument is a finding, not a failure."""
    found = probed(CachingServer(salt="refused"))
    assert (found.state, found.salt, found.nonce_isolates, found.block_tokens) == ("on", "refused", True, 16)


def test_a_salt_that_turns_the_cache_off() -> None:
    """Prompts with a salt that are never found again are not isolated, they are lost: the arms need a nonce."""
    found = probed(CachingServer(salt="hides"))
    assert (found.state, found.salt, found.nonce_isolates) == ("on", None, True)
    assert found.line.endswith("; what cache_salt does is not clear")


def test_a_prompt_that_is_found_late() -> None:
    """Servers may need a moment until a finished request can be found: asked once more before saying no."""
    found = probed(CachingServer(block=32, late=1))
    assert (found.state, found.salt, found.block_tokens) == ("on", "isolates", 32)


@pytest.mark.parametrize("tells", ["deepseek", "nonzero"])
def test_other_ways_of_telling(tells: str) -> None:
    """DeepSeek's field; and a server that leaves the number out where it is 0."""
    found = probed(CachingServer(tells=tells))
    assert (found.state, found.salt, found.block_tokens, found.reports_cached_tokens) == ("on", "isolates", 16, True)


@pytest.mark.parametrize(
    ("page", "flag"),
    [("vllm", "--enable-prompt-tokens-details"), ("sglang", "--enable-cache-report"), ("llamacpp", None)],
)
def test_counters_where_answers_are_silent(page: str, flag: str | None) -> None:
    """The counters' differences around each request give the same findings; the missing flag is named."""
    found = probed(CachingServer(tells="nothing", page=page, block=32))
    assert (found.state, found.salt, found.nonce_isolates, found.block_tokens) == ("on", "isolates", True, 32)
    assert (found.reports_cached_tokens, found.flag) == (False, flag)
    assert (flag or "--enable-cache-report") in found.line


def test_counters_of_a_server_that_others_use() -> None:
    """Somebody else's tokens are among the differences: nothing is concluded from them."""
    found = probed(CachingServer(tells="nothing", page="vllm", tenant=1))
    assert (found.state, found.salt, found.flag) == ("unknown", None, "--enable-prompt-tokens-details")
    assert "others use the server" in found.line


def test_others_begin_in_the_middle() -> None:
    """What was found before that stays."""
    found = probed(CachingServer(tells="nothing", page="vllm", tenant=4))
    assert (found.state, found.salt, found.block_tokens) == ("on", None, None)


@pytest.mark.parametrize(("owner", "flag"), [("vllm", "--enable-prompt-tokens-details"), ("somebody", None)])
def test_nothing_is_told(owner: str, flag: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown, in two requests; the flag to set is named, or both where the engine is not known."""
    server = CachingServer(tells="nothing", page=None if owner == "somebody" else owner)
    monkeypatch.setattr(server, "_page", lambda: "")
    found = probed(server, most=2)
    assert (found.state, found.block_tokens, found.reports_cached_tokens, found.flag) == ("unknown", None, False, flag)
    assert "--enable-prompt-tokens-details" in found.line
    assert ("--enable-cache-report" in found.line) == (flag is None)


@pytest.mark.parametrize("tells", ["usage", "nonzero", "nothing"])
def test_enabled_but_inert(tells: str) -> None:
    """The engine says that caching is on, counts lookups, and finds nothing, neither of 1281 nor of 5121 tokens."""
    server = CachingServer(caches=False, tells=tells, page="vllm", enabled=True)
    found = probed(server, most=6)
    assert (found.state, found.salt, found.block_tokens) == ("inert", None, None)
    assert found.reports_cached_tokens is (True if tells == "usage" else None)
    assert "enabled but inert" in found.line
    assert server.words.count(server.asked[-1]["messages"]) == 5121


def test_inert_by_its_lookups_alone() -> None:
    """A page without settings: that prompts are looked up is enough to say that the cache is on."""
    assert probed(CachingServer(caches=False, page="vllm")).state == "inert"


def test_off() -> None:
    """The engine says so, or nobody claims anything; the switch is not taken for an inert cache."""
    assert probed(CachingServer(caches=False, page="vllm", enabled=False), most=3).state == "off"
    found = probed(CachingServer(caches=False), most=3)
    assert (found.state, found.reports_cached_tokens) == ("off", True)
    assert found.line == "off, cached_tokens reported"


def test_blocks_longer_than_the_first_prompt() -> None:
    """A hybrid model's block of 2000 tokens: nothing of 1281 is found, 4000 of 5121 are."""
    found = probed(CachingServer(block=2000, page="vllm", enabled=True), most=14)
    assert (found.state, found.block_tokens, found.salt) == ("on", 2000, "isolates")


@pytest.mark.parametrize("told", [True, False])
def test_a_short_context(told: bool) -> None:
    """The model list gives the context, or the server refuses until the prompt is short enough."""
    server = CachingServer(block=32, limit=700, context=700 if told else None)
    found = probed(server)
    assert (found.state, found.block_tokens, found.salt, found.nonce_isolates) == ("on", 32, "isolates", True)
    assert server.words.count(server.asked[-1]["messages"]) == 640


def test_a_context_shorter_than_all_lengths() -> None:
    """100 tokens are enough to find blocks of 16."""
    found = probed(CachingServer(limit=100, context=100))
    assert (found.state, found.block_tokens) == ("on", 16)


def test_no_prompt_is_taken() -> None:
    """The server's own words are the reason."""
    found = probed(CachingServer(limit=10), most=4)
    assert found.state == "unknown"
    assert found.line == "unknown; the server answered 400: the context has 10 tokens"


def test_a_failure_in_the_middle() -> None:
    """What was found before it stays, and the reason is told; a server that still answers is not a dead one."""
    found = probed(CachingServer(ends_after=5))
    assert (found.state, found.salt, found.nonce_isolates) == ("on", "isolates", None)
    assert found.line.endswith("; http://h/v1/chat/completions: no answer in time")


def test_a_busy_server_is_asked_again() -> None:
    """Three refusals at the first request and one in the middle change nothing; four in a row are told."""
    free = probed(CachingServer(block=32))
    assert probed(CachingServer(block=32, busy=(1, 2, 3, 9))) == free
    busy = probed(CachingServer(block=32, busy=(1, 2, 3, 4)))
    assert busy.state == "unknown"
    assert busy.line == "unknown; the server answered 503: all slots are busy"


def test_a_dead_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then is there an exception."""
    server = CachingServer(ends_after=3)
    get, lists = server.get, []

    def dying(url: str) -> tuple[int, bytes]:
        lists.append(url)
        if lists.count("/v1/models") > 1:
            raise TargetError("http://h/v1/models: connection refused; nothing listens there")
        return get(url)

    monkeypatch.setattr(server, "get", dying)
    with pytest.raises(TargetError, match="connection refused"):
        probe_cache(server.prober(), counter_of(server))


def test_the_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request after a minute; findings until then stay."""
    server = CachingServer()
    counter = counter_of(server)
    now = [0.0]

    def clock() -> float:
        now[0] += 13
        return now[0]

    monkeypatch.setattr(cached_tokens.time, "monotonic", clock)
    found = probe_cache(server.prober(), counter)
    assert len(server.asked) == 4  # at 26, 39, 52 and 65 s of 13 + 60
    assert found.state == "on"
    assert found.line.endswith("; the probe took longer than 60 s")


def test_words_are_counted_only_roughly() -> None:
    """With a counter that guesses, lengths are the server's: the block size is found where they leave no doubt."""
    server = CachingServer(block=32)
    rough = survey(Server(lambda url, body: {}, "m"))
    assert not rough.exact
    found = probe_cache(server.prober(), rough)
    assert (found.state, found.salt, found.nonce_isolates) == ("on", "isolates", True)
    assert found.block_tokens in (32, None)


@pytest.mark.parametrize(
    ("prompts", "sizes"),
    [
        ([(740, 736)], [4, 8, 16, 23, 32, 46, 92, 184, 368, 736]),  # divisors of 736 above the 3 left over
        ([(740, 736), (736, 704)], [32]),
        ([(677, 676), (676, 675)], [1]),
        ([(1281, 1088), (1088, 544)], [544]),
        ([(600, 544), (544, 0)], [544]),
        ([(740, 704), (704, 640)], [64]),  # blocks of 32, one dropped: why a token more is asked for
        ([(None, 736), (736, None)], []),
    ],
)
def test_block_sizes_that_fit(prompts: list[tuple[int | None, int | None]], sizes: list[int]) -> None:
    """Worked out by hand: common divisors of what was found, larger than what was left over beside the last token."""
    assert block_sizes(tuple(Seen(tokens, cached) for tokens, cached in prompts)) == sizes


@pytest.mark.parametrize(
    ("name", "tokens", "cached"),
    [
        ("vllm-0.32.0-text/p_long_1", 740, 0),
        ("vllm-0.32.0-text/p_long_2_same", 740, 736),
        ("vllm-0.32.0-text/p_long_5_salt_B", 740, 0),
        ("sglang/p_long_1", 677, 3),
        ("sglang/p_long_2_same", 677, 676),
        ("sglang/p_long_3_salt", 677, 0),
        ("llamacpp-xllamacpp/p_long_2_same", 681, 680),
        ("llamacpp-xllamacpp/p_long_4_salt", 681, 680),
    ],
)
def test_recorded_answers(name: str, tokens: int, cached: int) -> None:
    """Usage of real engines; the prompts were the same but for the salt."""
    (line,) = re.findall(r'^data: (\{.*"usage":\{.*\})$', (CAPTURES / f"{name}.body").read_text(), re.MULTILINE)
    answer = json.loads(line)
    assert seen_in(answer) == Seen(tokens, cached, True)
    if "timings" in answer:
        del answer["usage"]["prompt_tokens_details"]
        assert seen_in(answer) == Seen(tokens, cached, True)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, [], {"usage": None}, {"usage": {"prompt_tokens_details": None}}, {"timings": 3}),
        {"usage": {"prompt_tokens": -5, "prompt_tokens_details": {"cached_tokens": True}}},
        {"usage": {"prompt_tokens": 50.0, "prompt_cache_hit_tokens": float("inf")}, "timings": {"cache_n": -1}},
    ],
)
def test_answers_that_tell_nothing(answer: object) -> None:
    """Whatever the shape, no exception and no 0."""
    assert seen_in(answer) == Seen(None, None, False)


def test_more_cached_tokens_than_the_prompt_has_are_none_that_could_be_believed() -> None:
    """Nor do they hide a number in another place that can be."""
    usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 1000}}
    assert seen_in({"usage": usage}) == Seen(10, None, False)
    assert seen_in({"usage": usage, "timings": {"cache_n": 10}}) == Seen(10, 10, True)


def probed_at(url: str, headers: dict[str, str] | None = None) -> CacheProbe:
    """Through real sockets, as before a run."""
    endpoint, target = Endpoint.parse(url), Target()
    counter = survey(counting_server(endpoint, target, {}, "demo-8b"))
    return probe_cache(prober(endpoint, target, headers or {}, "demo-8b"), counter)


@pytest.mark.parametrize(
    ("preset", "more", "state", "salt", "block"),
    [
        ("demo", [], "on", "isolates", 16),
        ("demo", ["--set", "salt=ignored"], "on", "ignored", 16),
        ("cache-off", [], "off", None, None),
        ("cache-inert", [], "inert", None, None),
    ],
)
def test_simulator(preset: str, more: list[str], state: str, salt: str | None, block: int | None) -> None:
    """A process of its own that shares no code: what its settings say is what the probe finds."""
    with running_simulator("--preset", preset, "--speed", "50", *more) as simulator:
        found = probed_at(f"http://127.0.0.1:{simulator.port}")
        asked = len(simulator.truth())
    assert (found.state, found.salt, found.block_tokens) == (state, salt, block)
    assert found.nonce_isolates is (True if state == "on" else None)
    assert (found.reports_cached_tokens, found.flag) == (True, None)
    assert 3 <= asked <= 12


def test_no_key_in_a_refusal(tmp_path: Path) -> None:
    """Servers repeat the key that they do not like; the line that is printed and stored does not have it."""
    key = "sk-acc-CANARY-7f3a9c21d4"
    answers = {
        "/v1/models": plain(200, '{"data": []}'),
        "/v1/chat/completions": plain(500, f'{{"error": "no worker for {key}"}}'),
        "*": plain(404, "{}"),
    }
    with Replay(tmp_path, answers) as server:
        found = probed_at(server.url, {"Authorization": f"Bearer {key}"})
    assert found.line == "unknown; the server answered 500: no worker for ***"


def test_a_server_that_is_not_there() -> None:
    """The one case of an exception: a line with the URL."""
    with pytest.raises(TargetError, match="/v1/models: connection refused"):
        probed_at("http://127.0.0.1:9")
