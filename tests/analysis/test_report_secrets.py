"""What a report shows of keys, headers and URLs: nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.report_secrets import shown, url_without_secrets, without_secrets
from tests.analysis.conftest import write_run
from tokenswarm.records import RequestRecord

SECRETS = ("hunter2", "sk-abcdef123456", "s3cr3tquery", "c00kievalue", "t0psecret", "bearertoken99", "k3yvalue")


def test_no_secret_reaches_any_file_of_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Secrets planted in URL, command, scenario, comments, headers, notes and errors are in no written file."""
    text = (
        "# key: sk-abcdef123456\n"
        "target:\n  url: https://user:hunter2@llm.example/v1?token=s3cr3tquery\n"
        "  api_key: t0psecret\n  headers: {Cookie: c00kievalue, X-Trace: k3yvalue, Authorization: '${LLM_KEY}'}\n"
    )
    target = {"url": "https://user:hunter2@llm.example/v1?token=s3cr3tquery", "api_key": "t0psecret"}
    target_settings = target | {"headers": {"Authorization": "Bearer bearertoken99", "Cookie": "c00kievalue"}}
    command = "locust --api-key t0psecret --host https://user:hunter2@llm.example/v1?token=s3cr3tquery --users 4"
    record = RequestRecord(
        level=0, concurrency=1, phase="measured", ticket=0, traffic="chat", sent_s=1.0, finished_s=2.0,
        error_kind="http_4xx", error='Authorization: Bearer bearertoken99, api_key="t0psecret", sk-abcdef123456',
    )  # fmt: skip
    run = write_run(
        tmp_path / "run",
        [record],
        levels=[{"concurrency": 1}],
        scenario={"name": "x", "target": target_settings},
        scenario_text=text,
        target=target | {"model": "m"},
        provenance={"command": command},
        notes=["asked https://user:hunter2@llm.example/v1?token=s3cr3tquery"],
    )
    assert main(["report", str(run), "--markdown"]) == 0
    assert "hunter2" in (run / "run.json").read_text()  # the secrets are there to be found
    written = [run / "report.html", run / "report.md"]
    for file in written:
        content = file.read_text()
        assert [secret for secret in SECRETS if secret in content] == []
        assert "llm.example" in content
        assert "${LLM_KEY}" in content.replace("$\\{", "${")  # where a key is, not what it is
        assert "--users 4" in content
    assert "report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("http://host:8000/v1", "http://host:8000/v1"),
        ("https://me:pw@host/v1?key=abc#frag", "https://host/v1?***"),
        ("http://[::1]:8000/", "http://[::1]:8000/"),
        ("http://[broken", "***"),
    ],
)
def test_url_keeps_host_and_path_only(url: str, right: str) -> None:
    """User, password, query and fragment go; what cannot be read is hidden as a whole."""
    assert url_without_secrets(url) == right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Cookie: a=1; session=c00kie", "Cookie: ***"),
        ('refused: {"api_key": "t0p", "n": 3}', 'refused: {"api_key": "***", "n": 3}'),
        ("Authorization: Basic dXNlcg==", "Authorization: ***"),
        ("--api-key=abc --users 3", "--api-key=*** --users 3"),
        ("export API_KEY=${MY_KEY}", "export API_KEY=${MY_KEY}"),
    ],
)
def test_secret_in_a_sentence_is_hidden(text: str, right: str) -> None:
    """The value goes, what it is called and what follows it stay."""
    assert shown(text) == right


@pytest.mark.parametrize(
    "text",
    [
        "p95 of TTFT: 1.5 s, tokens: 300, key figures",
        "locust --host http://h:1 --api-key-file keys/mine.txt",
        "asked_output_tokens=128; author: me",
        "load.closed.sessions.at_least: 72",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """Nothing is hidden that only resembles a secret by a word of it."""
    assert shown(text) == text


def test_scenario_keeps_everything_but_values_of_secrets() -> None:
    """Names of headers and of variables stay, numbers of tokens too."""
    scenario = {
        "target": {"api_key": "x1y2", "api_key_file": "k.txt", "headers": {"X-A": "1", "X-B": "${B}"}},
        "traffic": [{"output_tokens": {"fixed": 5}, "max_tokens": 3}],
    }
    assert json.loads(json.dumps(without_secrets(scenario))) == {
        "target": {"api_key": "***", "api_key_file": "k.txt", "headers": {"X-A": "***", "X-B": "${B}"}},
        "traffic": [{"output_tokens": {"fixed": 5}, "max_tokens": 3}],
    }
