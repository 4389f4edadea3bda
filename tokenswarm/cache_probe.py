"""What the server's prefix cache does, found out by about ten requests before any load.

A prompt that nobody has sent before is sent twice; then with a ``cache_salt``, with it again and with another one; then
behind a nonce; then a shorter prompt twice, which shows the block size: a cache of whole blocks that always computes at
least one token finds ``block × floor((n - 1) / block)`` tokens of ``n``, so that of as many tokens as it found before
it finds one block less.
"""

from __future__ import annotations

from math import gcd
from random import SystemRandom
from typing import Literal

import msgspec

from tokenswarm.cached_tokens import Asker, CannotTell, Prober, Refused, Seen
from tokenswarm.errors import TargetError
from tokenswarm.tokens import TokenCounter

__all__ = ["CacheProbe", "Prober", "probe_cache"]

# Caches with blocks of 16 to 256 or of 544 tokens leave less than half a block of 1280 over, so that one shorter prompt
# is enough to tell the size. The other lengths are for short contexts.
_LENGTHS = (1281, 641, 321, 161)
_LONGER = 5121  # for a cache that is said to be on and finds nothing: its blocks may be longer than the first prompt
_SPARE_TOKENS = 48  # left free in the context, for the answer and a nonce
_CHANCE_TOKENS = 8  # of equal words that may follow the chat template by chance
_FLAGS = {"vllm": "--enable-prompt-tokens-details", "sglang": "--enable-cache-report"}

State = Literal["on", "inert", "off", "unknown"]
Salt = Literal["isolates", "ignored", "refused"]


class CacheProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of one probe; None is "could not be told".

    ``inert``: the engine says that its cache is on, and computes a repeated prompt again all the same.
    """

    state: State
    block_tokens: int | None = None
    salt: Salt | None = None
    nonce_isolates: bool | None = None
    reports_cached_tokens: bool | None = None
    flag: str | None = None  # the server flag that would make it report them
    line: str = ""  # all of it in one line for a person, to be put behind "prefix cache: "


def probe_cache(server: Prober, counter: TokenCounter, *, api: str = "chat") -> CacheProbe:
    """Send the requests and conclude. Raises ``TargetError`` where the server gives no answer to anything."""
    probe = _Probe(Asker(server, api), counter)
    try:
        probe.run()
    except CannotTell as reason:
        probe.remark = str(reason)
    except TargetError as error:
        server.get(server.models)  # raises where the server is dead, not only slow
        probe.remark = str(error)
    return probe.findings()


class _Probe:
    """The steps; what they find stands in the fields until ``findings`` puts it together."""

    def __init__(self, asker: Asker, counter: TokenCounter) -> None:
        self.remark = ""
        self._asker = asker
        self._counter = counter
        self._rng = SystemRandom()
        self._state: State = "unknown"
        self._salt: Salt | None = None
        self._nonce: bool | None = None
        self._block: int | None = None
        self._text = ""
        self._floor = 0  # as much may be found of a prompt that nobody has sent before

    def run(self) -> None:
        repeated = self._repeat()
        if self._state == "on":
            self._salt = self._try_salts()
            self._nonce = self._try_nonce()
            self._block = self._find_block(repeated)

    # is anything found again? --------------------------------------------------------------

    def _repeat(self) -> Seen:
        first = self._first()
        template = self._counter.template_prefix
        own = self._counter.overhead if template is None else template
        self._floor = max(first.cached or 0, own) + _CHANCE_TOKENS
        seen = self._asker.again(self._text, self._floor)
        if seen.cached is None and not self._asker.told:
            return seen
        claimed = not self._hit(seen) and self._claims()
        if claimed:
            seen = self._repeat_longer() or seen
        self._state = "on" if self._hit(seen) else "inert" if claimed else "off"
        return seen

    def _first(self) -> Seen:
        """A prompt as long as the server takes."""
        refusal: Refused | None = None
        for tokens in self._lengths():
            self._text = self._prompt(tokens)
            try:
                return self._asker.ask(self._text)
            except Refused as error:
                refusal = error
        assert refusal is not None, "there are lengths"
        raise refusal

    def _lengths(self) -> list[int]:
        room = self._room
        lengths = [tokens for tokens in _LENGTHS if room is None or tokens <= room]
        return lengths or [max(1, room or 1)]

    @property
    def _room(self) -> int | None:
        context = self._asker.context
        return None if context is None else context - _SPARE_TOKENS

    def _prompt(self, tokens: int) -> str:
        """Fresh text for a prompt of so many tokens in all, as far as the counter is exact."""
        return self._counter.make_text(self._rng, max(1, tokens - self._counter.overhead))

    def _hit(self, seen: Seen) -> bool:
        """Some servers leave the number out where it is 0."""
        return (seen.cached or 0) > self._floor

    def _claims(self) -> bool:
        """Whether the engine says that its prefix cache is in use."""
        enabled = self._asker.config.enabled
        return self._asker.looked_up() if enabled is None else enabled

    def _repeat_longer(self) -> Seen | None:
        if self._room is not None and self._room < _LONGER:
            return None
        text = self._prompt(_LONGER)
        try:
            self._asker.ask(text)
            seen = self._asker.again(text, self._floor)
        except Refused:
            return None
        if self._hit(seen):
            self._text = text
        return seen

    # what keeps prompts apart? -------------------------------------------------------------

    def _try_salts(self) -> Salt | None:
        asker, text = self._asker, self._text
        one, other = (f"tokenswarm-probe-{self._rng.getrandbits(64):016x}" for _ in range(2))
        try:
            first = asker.ask(text, one)
        except Refused:
            return "refused"
        if self._hit(first):
            return "ignored"
        repeated = asker.again(text, self._floor, one)
        foreign = asker.ask(text, other)
        if any(map(self._unclear, (first, repeated, foreign))):
            return None
        if self._hit(repeated) and not self._hit(foreign):
            return "isolates"
        self.remark = "what cache_salt does is not clear"
        return None

    def _try_nonce(self) -> bool | None:
        try:
            seen = self._asker.ask(self._counter.make_nonce(self._rng) + self._text)
        except Refused:
            return None
        return None if self._unclear(seen) else not self._hit(seen)

    def _unclear(self, seen: Seen) -> bool:
        return seen.cached is None and not self._asker.told

    # how large are its blocks? -------------------------------------------------------------

    def _find_block(self, repeated: Seen) -> int | None:
        """By a prompt of as many tokens as were found; where that leaves a doubt, by one of a token more."""
        found, stated = repeated.cached or 0, self._asker.config.block_tokens
        if found <= self._counter.overhead:
            return None
        shorter = self._sent_twice(found)
        sizes = block_sizes((repeated, shorter))
        if stated in sizes:
            return stated
        if len(sizes) == 1 and _left_over(repeated) * 2 < sizes[0]:
            return sizes[0]
        longer = self._sent_twice(found + 1)
        if (shorter.tokens, longer.tokens) == (found, found + 1):
            block = (longer.cached or 0) - (shorter.cached or 0)
            if block > 0:
                return block
        return stated if stated and found % stated == 0 else None

    def _sent_twice(self, tokens: int) -> Seen:
        text = self._prompt(tokens)
        self._asker.ask(text)
        return self._asker.again(text, self._floor)

    # together ------------------------------------------------------------------------------

    def findings(self) -> CacheProbe:
        asker = self._asker
        reports = True if asker.told else None
        if not asker.told and asker.answers > 1 and self._state in ("on", "unknown"):
            reports = False
        flag = _FLAGS.get(asker.engine or "") if reports is False else None
        found = CacheProbe(
            state=self._state,
            block_tokens=self._block,
            salt=self._salt,
            nonce_isolates=self._nonce,
            reports_cached_tokens=reports,
            flag=flag,
        )
        return msgspec.structs.replace(found, line=_line(found, self._reason()))

    def _reason(self) -> str:
        if self._state == "unknown" and not self.remark and self._asker.busy:
            return "others use the server, so that its counters do not tell"
        return self.remark


def block_sizes(prompts: tuple[Seen, ...]) -> list[int]:
    """All block sizes with which a cache of whole blocks, one token always computed, finds what it found."""
    known = [(one.tokens, one.cached) for one in prompts if one.tokens is not None and one.cached is not None]
    common = gcd(*(cached for _, cached in known))
    return [
        size
        for size in range(1, common + 1)
        if common % size == 0 and all((tokens - 1) // size * size == cached for tokens, cached in known)
    ]


def _left_over(seen: Seen) -> int:
    """Tokens that were computed although they had been sent before, besides the last one."""
    return (seen.tokens or 0) - 1 - (seen.cached or 0)


def _line(found: CacheProbe, remark: str) -> str:
    parts = [_STATES[found.state]]
    if found.block_tokens is not None:
        parts.append(f"blocks of {found.block_tokens} tokens" if found.block_tokens > 1 else "to the token")
    if found.salt is not None:
        parts.append(_SALTS[found.salt])
    if found.nonce_isolates is not None:
        parts.append("a nonce isolates" if found.nonce_isolates else "a nonce does not isolate")
    if found.reports_cached_tokens is not None:
        parts.append("cached_tokens reported" if found.reports_cached_tokens else _advice(found.flag))
    return ", ".join(parts) + (f"; {remark}" if remark else "")


_STATES = {
    "on": "on",
    "inert": "enabled but inert (a repeated prompt is computed again)",
    "off": "off",
    "unknown": "unknown",
}
_SALTS = {
    "isolates": "cache_salt isolates",
    "ignored": "cache_salt is ignored",
    "refused": "cache_salt is refused",
}


def _advice(flag: str | None) -> str:
    how = f"start it with {flag}" if flag else "vLLM does with {vllm}, SGLang with {sglang}".format(**_FLAGS)
    return f"cached_tokens not reported by the server ({how})"
