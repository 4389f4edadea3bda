"""``python -m analysis``: finished runs into tables.

Exit codes: 0 good, 1 objective missed (with --check), 2 bad input, 3 run not credible (with --check).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis import audit_report, capacity_report, caption_report, ceiling_report, report_files, trace_export
from analysis import ceiling_experts as experts_report
from analysis import compare as compare_report
from analysis import ingest as ingest_report
from analysis import interference as interference_report
from analysis import prefix_cache as prefix_cache_report
from analysis.export import as_json, level_csv
from analysis.objectives import Verdict, judge
from analysis.outcome import Outcome
from analysis.render import Choice, markdown, one_line, terminal
from analysis.source import newest_run, read_outcome
from tokenswarm.errors import InputError, TokenswarmError

EXIT_BAD_INPUT = 2
RESULTS = "results"  # where runs go unless told otherwise


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand and returns its exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except TokenswarmError as problem:
        print(problem, file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0


def table(options: argparse.Namespace) -> int:
    """The concurrency and latency table of one run."""
    outcome = read_outcome(_run_of(options.run), failures_infinite=options.failures_infinite)
    verdict = judge(outcome)
    if options.save:
        _save(outcome, verdict)
    sys.stdout.write(_text(outcome, verdict, options))
    if not options.check:
        return 0
    for reason in verdict.doubts:
        print(f"not credible: {one_line(reason)}", file=sys.stderr)
    if options.format == "csv":  # every other format has them in its text
        for reason in verdict.missed:
            print(f"objective missed: {one_line(reason)}", file=sys.stderr)
    return verdict.exit_code


def prefix_cache(options: argparse.Namespace) -> int:
    """What the prefix cache bought: the paired levels of one run."""
    sys.stdout.write(prefix_cache_report.report(_run_of(options.run), options))
    return 0


def interference(options: argparse.Namespace) -> int:
    """What traffic classes do to each other: blocks of each alone and of all together."""
    sys.stdout.write(interference_report.report(_run_of(options.run), options))
    return 0


def compare(options: argparse.Namespace) -> int:
    """Two runs or more side by side: better, worse, or cannot tell."""
    text, code = compare_report.report(options)
    sys.stdout.write(text)
    return code if options.check else 0


def captions(options: argparse.Namespace) -> int:
    """Captioning runs side by side, with a plot."""
    named = [run for run in options.run if run]
    sys.stdout.write(caption_report.report(named or [_run_of([])], options))
    return 0


def audit(options: argparse.Namespace) -> int:
    """What does not close in runs and published tables: Little's law, TPOT against throughput, counts and more."""
    named = [run for run in options.run if run] or [_run_of([])]
    text, code = audit_report.report(named, options, read_outcome)
    sys.stdout.write(text)
    return code


def capacity(options: argparse.Namespace) -> int:
    """The users or the rate that fit each objective, the knee, why no more fits, and guidance in sentences."""
    sys.stdout.write(capacity_report.report(_run_of(options.run), options, read_outcome))
    return 0


def ceiling(options: argparse.Namespace) -> int:
    """What memory bandwidth allows at each level, by a model, and how much of it a run got."""
    sys.stdout.write(ceiling_report.report(options))
    return 0


def experts(options: argparse.Namespace) -> int:
    """The share of a model's experts that one forward pass touches, by a model."""
    sys.stdout.write(experts_report.report(options))
    return 0


def ingest(options: argparse.Namespace) -> int:
    """Logs of inference engines, by themselves or beside the levels of a run."""
    sys.stdout.write(ingest_report.report(options))
    return 0


def report(options: argparse.Namespace) -> int:
    """Everything about a run on one page that opens without a network: plots, tables, findings, how to repeat it."""
    named = [run for run in options.run if run] or [_run_of([])]
    for file in report_files.write_report(named, options):
        print(file)
    return 0


def export_trace(options: argparse.Namespace) -> int:
    """The load of a run as a trace that can be replayed."""
    trace_export.export(_run_of(options.run), options)
    return 0


def _text(outcome: Outcome, verdict: Verdict, options: argparse.Namespace) -> str:
    choice = Choice(by_class=options.by_class, notes=options.notes, intervals=options.intervals)
    match options.format:
        case "json":
            return as_json(outcome, verdict)
        case "csv":
            return level_csv(outcome, by_class=options.by_class)
        case "markdown":
            return markdown(outcome, verdict, choice=choice)
        case _:
            width = options.width or shutil.get_terminal_size((100, 24)).columns
            return terminal(outcome, verdict, width=width, choice=choice, colour=sys.stdout.isatty())


def _run_of(named: list[str]) -> str:
    """The one run that was named, else the newest below results/."""
    given = [run for run in named if run]
    if len(given) > 1:
        raise InputError(f"one run at a time, not {len(given)}: {', '.join(given)}")
    if given:
        return given[0]
    newest = newest_run(Path(RESULTS))
    if newest is None:
        raise InputError(f"no run in {RESULTS}/ yet: make demo, or name a run folder")
    print(f"newest run: {newest}", file=sys.stderr)
    return str(newest)


def _save(outcome: Outcome, verdict: Verdict) -> None:
    """Tables beside the rows they come from; they can be made again at any time and are written anew."""
    folder = Path(outcome.path)
    if not folder.is_dir():
        raise InputError(f"--save: {folder} is no run folder, only its tables have a place to be saved in")
    for name, text in (
        ("table.txt", terminal(outcome, verdict, width=100)),
        ("table.md", markdown(outcome, verdict)),
        ("table.csv", level_csv(outcome)),
        ("table.json", as_json(outcome, verdict)),
    ):
        (folder / name).write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description="Finished runs into tables.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # One line a subcommand: its name, its function, and the function that adds its options.
    for name, command, add_options in (
        ("table", table, _table_options),
        ("prefix-cache", prefix_cache, prefix_cache_report.add_options),
        ("captions", captions, caption_report.add_options),
        ("interference", interference, interference_report.add_options),
        ("audit", audit, audit_report.add_options),
        ("compare", compare, compare_report.add_options),
        ("capacity", capacity, capacity_report.add_options),
        ("ceiling", ceiling, ceiling_report.add_options),
        ("experts", experts, experts_report.add_options),
        ("ingest", ingest, ingest_report.add_options),
        ("report", report, report_files.add_options),
        ("export-trace", export_trace, trace_export.add_options),
    ):
        options = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        options.set_defaults(command=command)
        add_options(options)
    return parser


def _table_options(options: argparse.ArgumentParser) -> None:
    add = options.add_argument
    add(
        "run",
        metavar="RUN",
        nargs="*",
        help="a run folder, a requests.csv, the prefix of Locust's CSV files, another tool's results or a published "
        "table (default: the newest run in results/)",
    )
    add("--format", choices=("terminal", "markdown", "csv", "json"), default="terminal")
    add("--json", dest="format", action="store_const", const="json", help="same as --format json")
    add("--notes", action="store_true", help="all notes and definitions below the tables")
    add("--intervals", action="store_true", help="each figure of a level with its 95 %% interval, [low..high]")
    add("--by-class", action="store_true", help="one row for every traffic class of a level")
    add("--failures-infinite", action="store_true", help="quantiles count a failed request as infinitely late")
    add(
        "--check", action="store_true", help="exit with 1 where an objective is missed, 3 where the run is not credible"
    )
    add("--save", action="store_true", help="also write table.txt, .md, .csv and .json into the run folder")
    add("--width", type=int, help="columns of the terminal table (default: the terminal's)")


if __name__ == "__main__":
    sys.exit(main())
