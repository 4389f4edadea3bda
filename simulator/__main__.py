"""``python -m simulator``: a simulated inference server in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import signal
import sys
from typing import Any

import uvloop
import yaml

from simulator.engine_log import EngineLog
from simulator.faults import parse_fault
from simulator.server import Server
from simulator.settings import Settings, load_settings, preset_names

_OPEN_FILES = 65_536


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return value


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    add = parser.add_argument
    add("--preset", default="demo", help=f"{', '.join(preset_names())}, or a .yaml file (default: demo)")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0 lets the system choose; the line on standard output names it")
    add("--speed", type=_positive, default=1.0, help="divides every simulated duration")
    add("--seed", type=int, default=0)
    add("--api-key-env", metavar="NAME", help="environment variable with the key that /v1/* asks for")
    add("--model", help="name of the served model")
    add("--role-chunk", choices=("with-first-token", "at-acceptance", "none"))
    add("--tokens-per-chunk", type=int, metavar="N", help="the first chunk carries one token, the others N")
    add("--no-usage", action="store_true", help="never send usage")
    add("--no-prefix-cache", action="store_true")
    add("--max-num-seqs", type=int, metavar="N", help="sequences that run at a time; others wait")
    add(
        "--cold-start",
        nargs="?",
        type=_positive,
        const=True,
        metavar="SECONDS",
        help="the first request takes so much longer (without a value: what the preset says)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replaces any key of the preset, the value in YAML: salt=ignored, reasoning={median: 50}; may be repeated",
    )
    add("--no-stall", action="store_true", help="leave out the stall of the preset")
    add(
        "--fault",
        action="append",
        default=[],
        metavar="KIND[:KEY=VALUE,...]",
        help="refuse, 429, 503, error-in-stream, reset, stall or truncate; keys rate, above, every, after_tokens, "
        "retry_after_s; may be repeated",
    )
    add(
        "--until-stdin-closes",
        action="store_true",
        help="end when standard input does: with the process that started it",
    )
    add(
        "--log-interval",
        type=_positive,
        metavar="SECONDS",
        help="print the line about itself that vLLM prints, every SECONDS while there is anything to say",
    )
    add("--log-file", metavar="FILE", help="append these lines to FILE instead of standard error")
    add("--truth", choices=("ends", "tokens"), default="ends", help="tokens: /truth has a stamp for every token")
    return parser


def _changes(given: argparse.Namespace) -> dict[str, Any]:
    """The keys of the preset that the command line replaces; ``ValueError`` for what is no key and value."""
    asked = ("model", "role_chunk", "tokens_per_chunk", "max_num_seqs")
    changes = {key: getattr(given, key) for key in asked if getattr(given, key) is not None}
    if given.no_usage:
        changes["usage"] = False
    if given.no_prefix_cache:
        changes["prefix_cache"] = False
    if given.no_stall:
        changes["stall"] = None
    if given.cold_start is not None:
        changes["cold_start"] = True
        if given.cold_start is not True:
            changes["cold_start_s"] = given.cold_start
    if given.fault:
        changes["faults"] = tuple(parse_fault(text) for text in given.fault)
    return {**changes, **dict(map(_setting, given.set))}


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    try:
        if equals:
            return key, yaml.safe_load(value)
    except yaml.YAMLError:
        pass
    raise ValueError(f"--set {text}: KEY=VALUE is wanted, the value in YAML")


def _api_key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name)
    if not key:
        raise ValueError(f"--api-key-env: the environment has no {name}")
    return key


def _allow_many_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(server: Server, host: str, port: int, *, until_stdin_closes: bool = False) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    if until_stdin_closes:
        loop.add_reader(0, stopped.set)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    bound = await server.start(host, port)
    shown = f"[{host}]" if ":" in host else host
    print(f"listening on http://{shown}:{bound}", flush=True)
    gc.collect()
    gc.freeze()  # what exists now stays; collecting must not look at it again
    await stopped.wait()
    await server.stop()


def _log(given: argparse.Namespace) -> EngineLog | None:
    if given.log_interval is None:
        return None
    return EngineLog(given.log_interval, sys.stderr if given.log_file is None else open(given.log_file, "a"))


def _server(given: argparse.Namespace) -> Server:
    settings: Settings = load_settings(given.preset, **_changes(given))
    return Server(
        settings,
        speed=given.speed,
        seed=given.seed,
        api_key=_api_key(given.api_key_env),
        every_token=given.truth == "tokens",
        log=_log(given),
    )


def main() -> int:
    """0 after a signal, 2 for a mistake in the arguments or a port that cannot be had."""
    given = _arguments().parse_args()
    try:
        server = _server(given)
        _allow_many_connections()
        uvloop.run(_serve(server, given.host, given.port, until_stdin_closes=given.until_stdin_closes))
    except (ValueError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
