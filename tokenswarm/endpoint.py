"""Where to send: what people paste as a URL, turned into the paths of an OpenAI-compatible server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from tokenswarm.errors import InputError

Api = Literal["chat", "completions"]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TAILS: dict[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
_VERSION = re.compile(r"v\d+((alpha|beta)\d*)?")
_AZURE_DEPLOYMENT = re.compile(r".*/openai/deployments/[^/]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``prefix`` is the path of the API's root (``/v1``, ``/gateway/v1``), without a slash at its end.

    ``full`` tells that the URL already named the operation, so that ``/v1`` was not added to it.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    prefix: str
    query: str
    full: bool

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Accepts a server's root, the API's root, or the full path of an operation, with or without slashes and query.

        A missing scheme means http. ``/v1`` is added unless the path carries a version (``v1``, ``v1beta``) or is an
        Azure deployment. Raises ``InputError`` for anything that is no http(s) URL.
        """
        text = url.strip()
        if not text:
            raise InputError("URL is empty; wanted is something like http://host:8000")
        parts = _split(text if "://" in text else f"http://{text}", text)
        path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
        prefix, full = _api_root(path)
        scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
        port = parts.port or _DEFAULT_PORTS[scheme]
        return cls(scheme, parts.hostname or "", port, prefix, parts.query, full)

    @property
    def netloc(self) -> str:
        """Host and, where it is not the scheme's own, port; IPv6 in brackets: the value of a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    def path_for(self, api: Api) -> str:
        """Path and query of the operation."""
        return self.path_of(_TAILS[api])

    def path_of(self, tail: str) -> str:
        """Path and query below the API's root, for example of ``/models``."""
        return f"{self.prefix}{tail}?{self.query}" if self.query else self.prefix + tail

    def url_for(self, api: Api) -> str:
        return self.origin + self.path_for(api)

    @property
    def api_root(self) -> str:
        return self.origin + self.prefix

    @property
    def server_path(self) -> str:
        """Path before the version: where ``/health``, ``/metrics`` and ``/tokenize`` are."""
        head, _, last = self.prefix.rpartition("/")
        return head if _VERSION.fullmatch(last) else self.prefix

    @property
    def server_root(self) -> str:
        return self.origin + self.server_path

    @property
    def is_azure(self) -> bool:
        """Azure OpenAI wants its key in the header ``api-key``."""
        return self.host.endswith(".openai.azure.com") or "/openai/deployments/" in self.prefix + "/"


def _split(url: str, shown: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"URL {shown!r} cannot be read: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise InputError(f"URL {shown!r} begins with {parts.scheme}://; wanted is http:// or https://")
    if not parts.hostname or port == 0:
        raise InputError(f"URL {shown!r} names no host or port; wanted is something like http://host:8000")
    if parts.username is not None:
        raise InputError("the URL carries a user name or key before '@'; give the key as an API key instead")
    return parts


def _api_root(path: str) -> tuple[str, bool]:
    for tail in _TAILS.values():
        if path.endswith(tail):
            return path[: -len(tail)], True
    if _AZURE_DEPLOYMENT.fullmatch(path) or any(_VERSION.fullmatch(part) for part in path.split("/")):
        return path, False
    return f"{path}/v1", False
