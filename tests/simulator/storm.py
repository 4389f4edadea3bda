"""Random arrivals and departures on an engine with few blocks, and what must hold when all is over."""

from __future__ import annotations

import random

from simulator.engine import Engine, Sequence, State

MOST_STEPS = 100_000


def survive_storm(engine: Engine, seed: int) -> None:
    """Prompts and answers of 48 tokens at most: all that were not cancelled end complete, and no block is lost."""
    rng = random.Random(seed)
    everybody: list[Sequence] = []
    for number in range(200):
        prompt = [rng.randint(0, 1)] * rng.randint(1, 30)
        each = Sequence(prompt, list(range(rng.randint(1, 48 - len(prompt)))), number)
        everybody.append(each)
        while engine.next_s is not None and rng.random() < 0.9:
            engine.complete_step()
        engine.submit(each, engine.next_s - 0.001 if engine.next_s is not None else float(number))
        if rng.random() < 0.1:
            engine.cancel(rng.choice(everybody))
    for _ in range(MOST_STEPS):
        if engine.next_s is None:
            break
        engine.complete_step()
    assert engine.next_s is None, "the engine never comes to rest"
    assert engine.preemptions > 0
    assert engine.pool.usage == 0.0
    for each in everybody:
        assert each.state is State.CANCELLED or each.generated == len(each.answer)
