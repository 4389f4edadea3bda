"""The one check before any load: is a server there, does it accept the key, and what is its model called?

Plain request and answer through the standard library; nothing here is timed.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tokenswarm.cached_tokens import Prober, Reply
from tokenswarm.counting import Server
from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import TargetError
from tokenswarm.failures import body_text
from tokenswarm.scenario import Target

RETRY_INTERVAL_S = 0.5
_SIMULATOR = b'"tokenswarm-simulator"'
_PROBE_TIMEOUT_S = 30.0  # for one request of the cache probe
_LARGEST_ANSWER = 16_000_000  # bytes; nothing that is asked for here comes near
_PATIENCE = 2  # times the limit of a single wait, for the whole of an answer that has begun
_LONGEST_LIST = 8  # models named in a message


def request_headers(endpoint: Endpoint, target: Target) -> dict[str, str]:
    """Headers of every request, the key among them. Raises ``InputError`` where a key is named and cannot be read."""
    headers = target.read_headers()
    key = target.read_key()
    if key is not None:
        headers |= {"api-key": key} if endpoint.is_azure else {"Authorization": f"Bearer {key}"}
    return headers


class Caller:
    """Requests with an answer in one piece; every failure is a ``TargetError`` of one line with the URL."""

    def __init__(self, headers: Mapping[str, str], target: Target, timeout_s: float | None = None) -> None:
        """``timeout_s``: longest wait for an answer, instead of the target's limit for connecting."""
        self._headers = dict(headers)
        self._target = target
        self._timeout_s = timeout_s or target.timeouts.connect_s

    def get(self, url: str) -> tuple[int, bytes]:
        return self._call("GET", url, None)

    def post(self, url: str, body: dict[str, Any]) -> Any:
        """The JSON of a 200 answer."""
        status, answer = self._call("POST", url, json.dumps(body).encode())
        if status != 200:
            raise TargetError(f"{url} answered {status}: {self._shown(answer)}")
        return _json(url, answer)

    def reply(self, url: str, body: dict[str, Any]) -> Reply:
        """Any answer: what a 200 says, or the words of another one."""
        status, answer = self._call("POST", url, json.dumps(body).encode())
        return Reply(status, _json(url, answer)) if status == 200 else Reply(status, words=self._shown(answer))

    def require_answer(self, url: str, body: dict[str, Any]) -> None:
        """Raise where the server has nothing at ``url`` for this ``body``; any other failure is left to the load."""
        try:
            status, answer = self._call("POST", url, json.dumps(body).encode())
        except TargetError:
            return
        self.require_key(status, url)
        if status in (404, 405):
            raise TargetError(
                f"{url} answered {status} ({self._shown(answer)}); are the base URL and the model's name right?"
            )

    def require_key(self, status: int, url: str) -> None:
        """Raise where the server wants a key, or another one."""
        if status in (401, 403):
            sent = {name.lower() for name in self._headers} & {"authorization", "api-key"}
            problem = "the key was not accepted" if sent else "the server wants a key and none was sent"
            raise TargetError(f"{url} answered {status}: {problem}; give one with target.api_key or --api-key-file")

    def _call(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        parts = urlsplit(url)
        connection = self._connection(parts.hostname or "", parts.port, secure=parts.scheme == "https")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = _body(answer, time.monotonic() + _PATIENCE * self._timeout_s)
        except (OSError, http.client.HTTPException) as error:
            raise TargetError(f"{url}: {cause(error)}") from None
        finally:
            connection.close()
        if len(content) > _LARGEST_ANSWER:
            raise TargetError(f"{url}: the answer has more than {_LARGEST_ANSWER} bytes")
        return answer.status, content

    def _connection(self, host: str, port: int | None, *, secure: bool) -> http.client.HTTPConnection:
        if not secure:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        tls = self._target.tls
        context = ssl.create_default_context(cafile=tls.ca_file)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)

    def _shown(self, answer: bytes) -> str:
        text = " ".join(body_text(answer).split())[:200]
        for value in self._headers.values():
            text = text.replace(value.split(" ", 1)[-1], "***") if len(value) > 3 else text
        return text


def _body(answer: http.client.HTTPResponse, until_s: float) -> bytes:
    """All of it, or a little more than ``_LARGEST_ANSWER`` bytes. ``TimeoutError`` where it drips until then."""
    content = bytearray()
    while len(content) <= _LARGEST_ANSWER and (piece := answer.read1(_LARGEST_ANSWER)):
        content += piece
        if time.monotonic() > until_s:
            raise TimeoutError
    if answer.length and len(content) <= _LARGEST_ANSWER:
        raise http.client.IncompleteRead(bytes(content), answer.length)
    return bytes(content)


def cause(error: Exception) -> str:
    """Why a server could not be asked, in words a person can act on."""
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate is not trusted ({error.verify_message}); name it with --ca-file "
                "(target.tls.ca_file), or accept any with --insecure (target.tls.verify: false)"
            )
        case ssl.SSLError():
            return f"TLS failed ({error.reason or error}); is this an https server?"
        case socket.gaierror():
            return f"the host name is not found ({error.strerror})"
        case ConnectionRefusedError():
            return "connection refused; nothing listens there"
        case TimeoutError():
            return "no answer in time"
        case http.client.IncompleteRead():
            return "the answer broke off"
        case http.client.HTTPException():
            return f"the answer is not HTTP ({type(error).__name__}); is this an http server?"
        case _:
            return str(error) or type(error).__name__


def find_model(endpoint: Endpoint, target: Target, headers: Mapping[str, str]) -> str:
    """Ask once, or until ``timeouts.wait_ready_s`` has passed, for the server's models; return the one to use.

    Raises ``TargetError`` where nothing answers, the key is refused, or the choice is not clear.
    """
    caller, url = Caller(headers, target), endpoint.origin + endpoint.path_of("/models")
    deadline_s = time.monotonic() + target.timeouts.wait_ready_s
    while True:
        try:
            status, body = caller.get(url)
            if status != 503:
                caller.require_key(status, url)
                return _model_to_use(caller, endpoint, target, status, body)
            problem = TargetError(f"{url} answered 503: the server is not ready")
        except TargetError as error:
            if "certificate" in str(error) or "answered" in str(error):
                raise
            problem = error
        if time.monotonic() >= deadline_s:
            raise problem
        time.sleep(RETRY_INTERVAL_S)


def model_list(endpoint: Endpoint, target: Target, headers: Mapping[str, str]) -> bytes:
    """What the server says of its models; nothing where it has no list."""
    try:
        status, body = Caller(headers, target).get(endpoint.origin + endpoint.path_of("/models"))
    except TargetError:
        return b""
    return body if status == 200 else b""


def is_simulated(listing: bytes) -> bool:
    """Whether our own simulator answers there, as its model list says: its figures must not pass for a server's."""
    return _SIMULATOR in listing


def _shortest_request(target: Target) -> dict[str, Any]:
    content = {"messages": [{"role": "user", "content": "Hi"}]} if target.api == "chat" else {"prompt": "Hi"}
    return {"model": target.model, "max_tokens": 1, **content}


def _model_to_use(caller: Caller, endpoint: Endpoint, target: Target, status: int, listing: bytes) -> str:
    if target.model != "auto":
        if status != 200 or json.dumps(target.model).encode() not in listing:
            caller.require_answer(endpoint.url_for(target.api), _shortest_request(target))
        return target.model
    url = endpoint.origin + endpoint.path_of("/models")
    if status != 200:
        raise TargetError(f"{url} answered {status}; is the base URL right? If so, name the model with --model")
    return choose_model(_json(url, listing), url)


def choose_model(listing: Any, url: str) -> str:
    """The one base model of an OpenAI model list; adapters (LoRA) name a parent and are not chosen."""
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list):
        raise TargetError(f"{url} gives no model list; name the model with --model")
    models = [item for item in data if isinstance(item, dict) and isinstance(item.get("id"), str)]
    bases = [item["id"] for item in models if not item.get("parent")]
    if len(bases) == 1:
        return str(bases[0])
    names = ", ".join(item["id"] for item in models[:_LONGEST_LIST]) + (", …" if len(models) > _LONGEST_LIST else "")
    if not models:
        raise TargetError(f"{url} lists no model; is one loaded? Otherwise name it with --model")
    raise TargetError(f"{url} lists several models; choose one with --model: {names}")


def _json(url: str, body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise TargetError(f"{url} gives no JSON; is this an OpenAI-compatible server?") from None


def counting_server(endpoint: Endpoint, target: Target, headers: Mapping[str, str], model: str) -> Server:
    """Where prompt lengths can be asked for."""
    return Server(
        post=Caller(headers, target).post,
        model=model,
        root=endpoint.server_root,
        chat=endpoint.url_for("chat"),
        completions=endpoint.url_for("completions"),
        request=target.request,
    )


def prober(endpoint: Endpoint, target: Target, headers: Mapping[str, str], model: str) -> Prober:
    """How the cache probe reaches the server."""
    caller, quick = Caller(headers, target, timeout_s=_PROBE_TIMEOUT_S), Caller(headers, target)
    url = endpoint.url_for(target.api)
    return Prober(
        post=lambda body: caller.reply(url, body),
        get=quick.get,
        model=model,
        metrics=endpoint.server_root + "/metrics",
        models=endpoint.origin + endpoint.path_of("/models"),
        request=target.request,
    )
