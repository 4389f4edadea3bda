"""Recorded jobs of agents: what was asked, which tools were called, and what they answered.

A file has one conversation a line, as the OpenAI chat API has it; ``docs/agents.md`` describes the format::

    {"name": "…", "messages": […], "tools": […]}

``python -m tokenswarm.trajectories check FILE`` tells what is in a file, ``… import LOG > FILE`` makes one from a log.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tokenswarm.conversations import Misfit, Step, Trajectory, jobs_of
from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.message_logs import MessageLog

__all__ = ["LARGEST_FILE", "Step", "Trajectory", "read_trajectories"]

LARGEST_FILE = 200_000_000  # bytes
_MOST_PROBLEMS = 20
_LAYOUT = '{"messages": […]} is wanted, one conversation a line'
_PRIVATE = "recordings hold whatever people and tools said, personal data and keys too: read them before you share them"


def read_trajectories(path: str | Path) -> list[Trajectory]:
    """All jobs of a JSONL file, in its order.

    Raises ``ScenarioError`` (an ``InputError``) with a line for each conversation that cannot be used, telling the
    first mistake in it: ``file:line: place: value …: what is wanted``.
    """
    jobs: list[Trajectory] = []
    problems: list[str] = []
    for number, line in _lines(path):
        try:
            jobs += jobs_of(msgspec.json.decode(line), f"line {number}")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problems.append(f"{path}:{number}: no JSON ({error}); {_LAYOUT}")
        except Misfit as misfit:
            problems.append(f"{path}:{number}: {misfit}")
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = [f"{path}: {len(problems) - _MOST_PROBLEMS} more lines cannot be used"]
    if not jobs and not problems:
        problems = [f"{path}: holds no job; {_LAYOUT}"]
    if problems:
        raise ScenarioError(problems)
    return jobs


def _lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Numbers from 1 and contents of the lines that are not blank. Raises ``InputError``."""
    file = Path(path)
    try:
        size = file.stat().st_size
        raw = file.read_bytes() if size <= LARGEST_FILE else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if size > LARGEST_FILE:
        raise InputError(f"{path}: {size} bytes; at most {LARGEST_FILE} are wanted, since every process keeps all jobs")
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            yield number, line


def summary(jobs: list[Trajectory]) -> str:
    """Counts of jobs, steps and calls, and how much of them is known."""
    steps = [step for job in jobs for step in job.steps]
    lengths = [len(job.steps) for job in jobs]
    with_calls = [step for step in steps if step.results]
    least, most = min(lengths), max(lengths)
    return (
        f"{_count(len(jobs), 'job')}, {_count(len(steps), 'step')} "
        f"({least if least == most else f'{least} to {most}'} a job), "
        f"{_count(sum(len(step.calls) for step in steps), 'call')}, "
        f"longest context {max(job.context_characters for job in jobs)} characters; "
        f"output_tokens known for {sum(step.output_tokens is not None for step in steps)} of {len(steps)} steps, "
        f"tool_time_s for {sum(step.tool_time_s is not None for step in with_calls)} of {len(with_calls)}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _check(paths: list[str]) -> int:
    code = 0
    for path in paths:
        try:
            print(f"{path}: {summary(read_trajectories(path))}")
        except InputError as error:
            print(error, file=sys.stderr)
            code = 2
    return code


def _import(paths: list[str]) -> int:
    """Jobs to standard output, what could not be used to standard error; 2 where there is no job or no file."""
    log = MessageLog()
    try:
        for path in paths:
            log.read(path)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    jobs: list[Trajectory] = []
    for place, conversation in log.conversations():
        try:
            jobs += jobs_of(conversation, place)
        except Misfit as misfit:
            log.tell(place, f"left out: {misfit}")
            continue
        print(msgspec.json.encode(conversation).decode())
    for line in log.notes():
        print(line, file=sys.stderr)
    print(f"{_count(log.lines, 'line')}: {summary(jobs) if jobs else 'no job'}", file=sys.stderr)
    print(_PRIVATE, file=sys.stderr)
    return 0 if jobs else 2


def main() -> int:
    """``check FILE…`` or ``import LOG… > FILE``; the exit code is 2 where something named cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m tokenswarm.trajectories", description="Recorded jobs of agents.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="tell what is in files of recorded jobs")
    check.add_argument("files", nargs="+", metavar="FILE")
    importing = commands.add_parser("import", help="turn logs of chat requests into recorded jobs, on standard output")
    importing.add_argument("files", nargs="+", metavar="LOG")
    options = parser.parse_args()
    return _check(options.files) if options.command == "check" else _import(options.files)


if __name__ == "__main__":
    raise SystemExit(main())
