"""vLLM as it starts without any option about tools or reports: what a user is told then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engines.agents import AGENTIC, TOOLS
from tests.engines.conftest import Engine, vllm_engine
from tests.engines.test_cache_probe import probed
from tests.locust_process import Run

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Without ``--enable-prompt-tokens-details`` and ``--enable-auto-tool-choice``."""
    with vllm_engine(tmp_path_factory.mktemp("bare"), options=()) as engine:
        yield engine


def test_cache_probe_by_vllms_counters(bare: Engine) -> None:
    """A vLLM that does not report them: the same findings by its counters, and the flag that it lacks."""
    found = probed(bare, "tiny")
    assert (found.state, found.block_tokens, found.salt) == ("on", 32, "isolates")
    assert (found.reports_cached_tokens, found.flag) == (False, "--enable-prompt-tokens-details")


def test_agents_are_refused_before_any_load(bare: Engine, locust: Callable[..., Run]) -> None:
    """One line says which flag the server lacks and what it would take instead; no run begins."""
    scenario = f"traffic: [{{kind: agentic, tools: {TOOLS}}}]\nload: {{closed: {{users: [1], sessions: 1}}}}\n"
    run = locust("-H", bare.url, scenario=scenario, locustfile=AGENTIC)
    assert run.code != 0
    assert run.rows == []
    (line,) = [line for line in run.output.splitlines() if "tool_choice" in line]
    assert "--enable-auto-tool-choice --tool-call-parser" in line
    assert line.endswith("or set tool_choice: none (no calls)")
    assert "Traceback" not in run.output
