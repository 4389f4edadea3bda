"""The check before any load: one sentence with the URL and the cause, or the model to use."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.replay import Replay, plain
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import TargetError
from tokenswarm.scenario import Target, Timeouts
from tokenswarm.target import Caller, find_model, request_headers

MODELS = Path(__file__).parents[1] / "contract" / "models"
KEY = "sk-acc-CANARY-7f3a9c21d4"


def find(url: str, wait_ready_s: float = 0, headers: dict[str, str] | None = None, **options: Any) -> str:
    target = Target(timeouts=Timeouts(connect_s=5, wait_ready_s=wait_ready_s), **options)
    return find_model(Endpoint.parse(url), target, headers or {})


def refusal(url: str, **options: Any) -> str:
    with pytest.raises(TargetError) as raised:
        find(url, **options)
    text = str(raised.value)
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def listing(name: str) -> dict[str, Any]:
    return plain(200, (MODELS / f"{name}.json").read_text(), ("Content-Type", "application/json"))


@pytest.mark.parametrize(
    ("name", "model"), [("one", "org/Model-A"), ("ollama", "gemma4:e4b"), ("alias_and_lora", "my-alias")]
)
def test_the_model_is_clear(name: str, model: str, tmp_path: Path) -> None:
    """One model, or one base model with adapters."""
    with Replay(tmp_path, {"/v1/models": listing(name)}) as server:
        assert find(server.url) == model


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (listing("two"), ["several models", ": a, b"]),
        (listing("empty"), ["lists no model"]),
        (listing("not_list"), ["no model list"]),
        (plain(200, "hello"), ["no JSON"]),
        (plain(404, '{"detail":"Not Found"}'), ["404"]),
        (plain(401, '{"error":"Unauthorized"}'), ["401", "wants a key and none was sent"]),
    ],
)
def test_the_model_is_not_clear(answer: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    """The message names the full URL and what to do."""
    with Replay(tmp_path, {"/gw/v1/models": answer}) as server:
        text = refusal(f"{server.url}/gw/")
        assert f"{server.url}/gw/v1/models" in text
        for word in words:
            assert word in text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"data":', "the answer broke off"),
        (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"data":\r\n', "the answer broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000, "no JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 20_000_000, "the answer has more than 16000000 bytes"),
    ],
)
def test_answers_that_break_off_or_never_end(answer: bytes, words: str) -> None:
    """A part of an answer is none, and no answer is read without limit."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_say, args=(listener, answer))
        thread.start()
        assert words in refusal(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_an_answer_that_drips_is_given_up() -> None:
    """A byte now and then keeps every single wait short; the whole is bounded too."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_drip, args=(listener, done))
        thread.start()
        started = time.monotonic()
        caller = Caller({}, Target(), timeout_s=0.5)
        with pytest.raises(TargetError, match="no answer in time"):
            caller.get(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        assert 0.9 < time.monotonic() - started < 10
        done.set()
        thread.join()


def _drip(listener: socket.socket, done: threading.Event) -> None:
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not done.wait(0.05):
            connection.sendall(b"#")


def _say(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        with contextlib.suppress(OSError):  # it was told enough
            connection.sendall(answer)


def test_wrong_path_with_a_named_model(tmp_path: Path) -> None:
    """A 404 of the operation itself stops the run before it begins, and names the URL that was called."""
    with Replay(tmp_path, {"*": plain(404, '{"detail":"Not Found"}')}) as server:
        text = refusal(f"{server.url}/wrong", model="m")
    assert "404" in text
    assert "/wrong/v1/chat/completions" in text


def test_nobody_listens() -> None:
    """Refused at once, not after the waiting time of something else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    started_s = time.monotonic()
    text = refusal(url)
    assert f"{url}/v1/models" in text
    assert "refused" in text
    assert time.monotonic() - started_s < 5


def test_waiting_ends() -> None:
    """Within the waiting time and 5 s, with the cause."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    started_s = time.monotonic()
    assert "refused" in refusal(url, wait_ready_s=1)
    assert 1 <= time.monotonic() - started_s < 6


def test_server_that_gets_ready(tmp_path: Path) -> None:
    """503 while loading, then a model: the waiting time is for this."""
    with Replay(tmp_path, {"/v1/models": [plain(503, "loading"), listing("one")]}) as server:
        assert find(server.url, wait_ready_s=10) == "org/Model-A"
        assert len(server.log()) == 2


def test_unknown_host() -> None:
    """The host's name is the cause."""
    assert "not found" in refusal("http://no-such-host.invalid/v1")


def test_untrusted_certificate(tmp_path: Path) -> None:
    """The word certificate and both options; it works with either."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the program openssl to make a certificate")
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    with Replay(tmp_path, {"/v1/models": listing("one")}, cert=cert, key=key) as server:
        text = refusal(server.url, wait_ready_s=60)
        assert "certificate" in text
        assert "tls.ca_file" in text
        assert "tls.verify" in text
        assert find(server.url, tls={"ca_file": cert}) == "org/Model-A"
        assert find(server.url, tls={"verify": False}) == "org/Model-A"


@pytest.mark.parametrize(
    ("url", "header", "value"),
    [
        ("http://h:8000", "Authorization", f"Bearer {KEY}"),
        ("https://me.openai.azure.com/openai/deployments/d1", "api-key", KEY),
    ],
)
def test_key_goes_into_the_right_header(url: str, header: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bearer everywhere, Azure's own header there."""
    monkeypatch.setenv("SOME_KEY", KEY)
    assert request_headers(Endpoint.parse(url), Target(api_key="${SOME_KEY}")) == {header: value}


def test_key_is_sent_and_not_told(tmp_path: Path) -> None:
    """A server that repeats the key in its error does not get it into the message."""
    headers = {"Authorization": f"Bearer {KEY}"}
    for status in (401, 404):
        with Replay(tmp_path, {"*": plain(status, f'{{"error":{{"message":"Incorrect key {KEY}."}}}}')}) as server:
            assert KEY not in refusal(server.url, headers=headers, model="m")
            assert server.log()[0]["headers"]["authorization"] == f"Bearer {KEY}"


def test_no_tokenizer_is_chosen() -> None:
    """Finding the model loads neither transformers nor pandas."""
    code = "import sys, tokenswarm.target, tokenswarm.client; print({'transformers', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
