"""The files of ``deploy/`` as data, and a real parser of Locust's and our options in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
UID = 10001

# Parses each command line as Locust does after it has read the locustfile, environment variables left aside.
_PARSER = """
import json, sys
from locust import argument_parser
from tokenswarm import plugin
plugin.install()
asked = json.load(sys.stdin)
parser = argument_parser.get_parser()
known = {action.env_var for action in parser._actions if getattr(action, "env_var", None)}
parsed = [vars(parser.parse_args(args=words, env_vars={})) for words in asked]
json.dump({"variables": sorted(known), "parsed": parsed}, sys.stdout, default=str)
"""


class _Loader(yaml.SafeLoader):
    """Takes the tags with which compose files change how they are merged."""


_Loader.add_constructor("!reset", lambda loader, node: loader.construct_sequence(node))


def read(path: Path) -> list[Any]:
    """The documents of a YAML file."""
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_Loader))


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    (document,) = read(DEPLOY / name)
    assert isinstance(document, dict)
    return document


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """What the kustomization lists, and the pod for reading results, by kind and name."""
    (kustomization,) = read(KUBERNETES / "kustomization.yaml")
    files = [*kustomization["resources"], "results-reader.yaml"]
    found = [document for name in files for document in read(KUBERNETES / name)]
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


def pods() -> dict[str, dict[str, Any]]:
    """Pod templates, by the name of the Job or pod."""
    return {
        name: document["spec"]["template"] if kind == "Job" else document
        for (kind, name), document in manifests().items()
        if kind in ("Job", "Pod")
    }


def containers() -> dict[str, dict[str, Any]]:
    """The one container of each pod, by the name of the Job or pod."""
    found = {}
    for name, pod in pods().items():
        (found[name],) = pod["spec"]["containers"]
    return found


def locust_options(*command_lines: list[str]) -> tuple[list[dict[str, Any]], set[str]]:
    """What Locust makes of each command line (without the word locust), and the environment variables it reads."""
    ran = subprocess.run(
        [sys.executable, "-c", _PARSER],
        input=json.dumps(command_lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    return answer["parsed"], set(answer["variables"])
