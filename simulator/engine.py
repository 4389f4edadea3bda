"""A model of an inference engine's step loop: no sockets, no clock. Virtual seconds go in, steps come out.

Whoever drives it submits sequences with their arrival time and calls :meth:`Engine.complete_step` as soon as
``next_s`` is due. A step takes ``decode_step_s[sequences that decode] + prefill_token_s * prompt tokens computed``
(plus what a preset asks for: admission cost, one-off stalls, a cold start, jitter); all its tokens appear at its end,
one a sequence and, with speculative decoding, the draft tokens that were right. Images are encoded in the step that
comes to them, before anything else in it.
"""

from __future__ import annotations

import random
from collections import deque

from simulator.drafts import Drafts
from simulator.encoder import Encoder
from simulator.kv import BlockPool, chain_hashes
from simulator.sequence import Sequence, State, Step
from simulator.settings import EngineSettings, Stall

__all__ = ["Engine", "Sequence", "State", "Step"]


class Engine:
    """Continuous batching with chunked prefill over a :class:`BlockPool`, first come first served."""

    def __init__(self, settings: EngineSettings, seed: int = 0) -> None:
        self.settings = settings
        found = settings.prefix_cache and not settings.inert_cache
        self.pool = BlockPool(settings.kv_blocks, settings.block_size, found)
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.next_s: float | None = None  # end of the step in progress; None when idle
        self.preemptions = 0
        self.prefix_queries = 0  # tokens; none while the cache is off, as in vLLM
        self.prefix_hits = 0
        self.encoder = Encoder(settings.encoder_image_s, settings.encoder_token_s, settings.encoder_cache_tokens)
        self.drafts = Drafts(settings.acceptance, seed) if settings.acceptance else None
        self._slots = 1 + len(settings.acceptance)  # keys and values that a decode step writes for one sequence
        self._random = random.Random(seed)
        self._step: Step | None = None
        self._decoding: list[Sequence] = []
        self._prefilled: list[Sequence] = []  # whose prompt is complete at the end of the step in progress
        self._first_step_s: float | None = None  # where a drift begins
        self._cold = settings.cold_start_s > 0
        self._stall: Stall | None = settings.stall
        self._was_below_stall = True

    # -- what the driver calls -------------------------------------------------------------------------------------

    def submit(self, sequence: Sequence, at_s: float) -> None:
        """``at_s`` must not lie before the last completed step; an idle engine starts a step at once.

        Raises ``ValueError`` for a sequence that could never end because it is larger than the whole memory.
        """
        if len(sequence.prompt) + len(sequence.answer) > self.settings.kv_blocks * self.settings.block_size:
            raise ValueError("prompt and answer exceed the KV memory")
        sequence.arrival_s = at_s
        if self.pool.prefix_cache:
            sequence.hashes = chain_hashes(sequence.prompt, self.settings.block_size, sequence.root)
        if self.drafts is not None:
            sequence.place = self.drafts.place(sequence.prompt)
        self.waiting.append(sequence)
        if self.next_s is None:
            self._begin_step(at_s)

    def cancel(self, sequence: Sequence) -> None:
        """Its blocks are free at once; a step in progress still takes its time."""
        if sequence.state is State.WAITING:
            self.waiting.remove(sequence)
        elif sequence.state is State.RUNNING:
            self.running.remove(sequence)
            self.pool.release(sequence.blocks)
        else:
            return
        sequence.state = State.CANCELLED

    def complete_step(self) -> Step:
        """Ends the step in progress, at exactly ``next_s``, and begins the next one if there is work."""
        step = self._step
        if step is None:
            raise RuntimeError("no step is in progress")
        self._decode(step)
        for sequence in self._prefilled:
            if sequence.state is not State.RUNNING:
                continue
            if sequence.last_token_s is None:
                step.first.append(sequence)
            else:
                step.resumed.append(sequence)
                step.resumed_gaps_s.append(step.end_s - sequence.last_token_s)
            sequence.gained = 1
            self._add_tokens(sequence, step, 1)
        if step.finished:
            self.running = [sequence for sequence in self.running if sequence.state is State.RUNNING]
        self._begin_step(step.end_s)
        return step

    # -- one step --------------------------------------------------------------------------------------------------

    def _decode(self, step: Step) -> None:
        running, decoded, drafts = State.RUNNING, step.decoded, self.drafts
        for sequence in self._decoding:
            if sequence.state is running:
                decoded.append(sequence)
                tokens = 1 if drafts is None else self._verify(drafts, sequence, step)
                sequence.room -= tokens
                self._grow(sequence, tokens)
                self._add_tokens(sequence, step, tokens)

    def _verify(self, drafts: Drafts, sequence: Sequence, step: Step) -> int:
        """Tokens that a decode step gives: one, and those of its draft that were right, up to the answer's end."""
        accepted = drafts.verify(sequence.place + sequence.generated)
        sequence.gained = min(1 + accepted, len(sequence.answer) - sequence.generated)
        step.accepted += sequence.gained - 1
        return sequence.gained

    def _add_tokens(self, sequence: Sequence, step: Step, tokens: int) -> None:
        sequence.generated += tokens
        sequence.last_token_s = step.end_s
        if sequence.generated == 1:
            sequence.first_token_s = step.end_s
        if sequence.generated >= len(sequence.answer):
            sequence.state = State.FINISHED
            self.pool.release(sequence.blocks)
            step.finished.append(sequence)

    def _begin_step(self, start_s: float) -> None:
        self._decoding = []
        self._prefilled = []
        prefill_tokens = self._schedule_running()
        admitted, prefill_tokens = self._admit(start_s, prefill_tokens)
        if not self.running:
            self._step, self.next_s = None, None
            self._was_below_stall = True
            return
        duration_s = self._duration_s(len(self._decoding), prefill_tokens, admitted)
        self.next_s = start_s + duration_s * self._slowness(start_s)
        self._step = Step(start_s, self.next_s, prefill_tokens)

    def _schedule_running(self) -> int:
        """Gives every running sequence its work for this step; returns the prompt tokens among it."""
        prefill_tokens = 0
        slots = self._slots
        for sequence in list(self.running):
            if sequence.state is not State.RUNNING:
                continue  # lost its blocks to one before it
            if sequence.to_prefill:
                prefill_tokens += self._prefill(sequence, prefill_tokens)
            elif sequence.room >= slots or self._extend(sequence):
                self._decoding.append(sequence)
        return prefill_tokens

    def _prefill(self, sequence: Sequence, spent: int) -> int:
        """Computes the next piece of a prompt under both caps; returns its tokens."""
        settings = self.settings
        tokens = min(sequence.to_prefill, settings.prefill_request_tokens, settings.prefill_step_tokens - spent)
        if tokens <= 0:
            return 0
        sequence.to_prefill -= tokens
        if sequence.images:
            end = sequence.computed + tokens
            sequence.encoded = self.encoder.begin(sequence.images, sequence.encoded, sequence.computed, end)
        self._grow(sequence, tokens)
        if not sequence.to_prefill:
            self._prefilled.append(sequence)
        return tokens

    def _admit(self, start_s: float, spent: int) -> tuple[int, int]:
        """Moves sequences from the queue while there is a place, a prompt token to spend and room for the whole prompt.

        ``spent`` are the step's prompt tokens so far. Each sequence gets its first piece before the next one is looked
        at, which therefore finds the blocks that this very step computes, as in vLLM. Returns how many were moved and
        the step's prompt tokens.
        """
        admitted = 0
        settings = self.settings
        while self.waiting and len(self.running) < settings.max_num_seqs and spent < settings.prefill_step_tokens:
            sequence = self.waiting[0]
            if not self._reserve(sequence):
                break
            self.waiting.popleft()
            sequence.state = State.RUNNING
            if sequence.started_s is None:
                sequence.started_s = start_s
                self._count_lookup(sequence)
            self.running.append(sequence)
            spent += self._prefill(sequence, spent)
            admitted += 1
        return admitted, spent

    def _count_lookup(self, sequence: Sequence) -> None:
        sequence.cached_tokens = sequence.computed
        if self.settings.prefix_cache:
            self.prefix_queries += len(sequence.prompt)
            self.prefix_hits += sequence.computed

    def _reserve(self, sequence: Sequence) -> bool:
        """Blocks for all tokens known so far: a known prefix shared, the rest empty. False if they are too few."""
        size = self.settings.block_size
        tokens = len(sequence.prompt) + sequence.generated
        known = self.pool.find_prefix(sequence.hashes[: (tokens - 1) // size])  # one token at least is computed
        fresh = -(-tokens // size) - len(known)
        if fresh + self.pool.unused_among(known) > self.pool.free_blocks:
            return False
        self.pool.share(known)
        sequence.blocks = known + self.pool.take(fresh)
        sequence.computed = len(known) * size
        sequence.encoded = 0
        sequence.to_prefill = tokens - sequence.computed
        sequence.room = len(sequence.blocks) * size - tokens
        return True

    def _extend(self, sequence: Sequence) -> bool:
        """Blocks for a sequence's next decode step; the youngest sequence gives way when there are none."""
        slots = min(self._slots, len(sequence.answer) - sequence.generated)  # none beyond the end of the answer
        while sequence.room < slots:
            while not self.pool.free_blocks:
                victim = self.running[-1]
                self._preempt(victim)
                if victim is sequence:
                    return False
            sequence.blocks += self.pool.take(1)
            sequence.room += self.settings.block_size
        return True

    def _preempt(self, victim: Sequence) -> None:
        """Back to the head of the queue; its prompt and answer so far are computed again later."""
        self.running.pop()
        self.pool.release(victim.blocks)
        victim.blocks = []
        victim.state = State.WAITING
        self.waiting.appendleft(victim)
        self.preemptions += 1
        for work in (self._decoding, self._prefilled):
            if victim in work:
                work.remove(victim)

    def _grow(self, sequence: Sequence, tokens: int) -> None:
        """Notes that ``tokens`` more have their keys and values, and names the blocks that became full."""
        size = self.settings.block_size
        before = sequence.computed // size
        sequence.computed += tokens
        full = sequence.computed // size
        if full == before or not self.pool.prefix_cache:
            return
        if full > len(sequence.hashes):
            self._hash_answer(sequence, full)
        for index in range(before, full):
            self.pool.remember(sequence.blocks[index], sequence.hashes[index])

    def _hash_answer(self, sequence: Sequence, full: int) -> None:
        """Hashes up to block ``full`` where blocks reach into the answer."""
        size = self.settings.block_size
        done = len(sequence.hashes) * size
        in_prompt = len(sequence.prompt)
        tokens = [*sequence.prompt[done:], *sequence.answer[max(0, done - in_prompt) : full * size - in_prompt]]
        parent = sequence.hashes[-1] if sequence.hashes else sequence.root
        sequence.hashes += chain_hashes(tokens, size, parent)

    def _duration_s(self, decoding: int, prefill_tokens: int, admitted: int) -> float:
        settings = self.settings
        seconds = settings.decode_step_s.at(decoding) + settings.prefill_token_s * prefill_tokens
        seconds += self.encoder.take_s()
        if admitted and settings.admission_s is not None:
            seconds += settings.admission_s.at(admitted)
        if settings.step_jitter:
            seconds *= max(0.5, 1.0 + settings.step_jitter * self._random.gauss(0.0, 1.0))
        if self._cold:
            self._cold = False
            seconds += settings.cold_start_s
        return seconds + self._stall_s()

    def _slowness(self, start_s: float) -> float:
        """What a step's time is multiplied by: 1 in the first step ever, then what ``drift`` says."""
        drift = self.settings.drift
        if drift is None:
            return 1.0
        if self._first_step_s is None:
            self._first_step_s = start_s
        return 1.0 + (drift.factor - 1.0) * min(1.0, (start_s - self._first_step_s) / drift.until_s)

    def _stall_s(self) -> float:
        stall = self._stall
        if stall is None:
            return 0.0
        below = len(self.running) + len(self.waiting) < stall.at_running
        fires = self._was_below_stall and not below
        self._was_below_stall = below
        if not fires:
            return 0.0
        if stall.once:
            self._stall = None
        return stall.seconds
