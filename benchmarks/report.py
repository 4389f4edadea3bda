"""Tables for the terminal, targets with their honest outcome, and everything as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.figures import Row
from benchmarks.process import ROOT

OTHERS_LIMIT = 0.1  # cores

Results = Mapping[str, Sequence[Row]]

# Columns of each table, in this order; the unit is in the name.
_COST = ("cpu_us_per_token", "tokens_per_s", "client_cpu", "server_cpu", "others_cpu", "driven")
_TIMES = (
    "lag_p50_ms",
    "lag_p95_ms",
    "lag_p99_ms",
    "ttft_error_p50_ms",
    "ttft_error_p95_ms",
    "ttft_p95_error_ms",
    "tpot_error_p95",
    "merged_reads",
    "server_late_p95_ms",
    "tokens_exact",
    "failed",
)
_ONE_CORE = ("thinking", "streams", "arrivals")
_RATES = ("requests", "requests_per_s", "send_delay_p95_ms")
COLUMNS: dict[str, tuple[str, ...]] = {
    "start-up": ("runs", "first_request_s", "slowest_s", "heavy_imports", "packages"),
    "paced": ("streams", "in_step", *_COST, *_TIMES),
    "client": ("streams", "in_step", *_COST, *_TIMES),
    "truth": ("streams", "runs", "requests", "first_lag_p95_ms", *_TIMES),
    "unpaced": (
        "load",
        "runs",
        "tokens_per_s",
        "cpu_us_per_token",
        "requests_per_s",
        "cpu_us_per_request",
        "client_cpu",
        "server_cpu",
        "others_cpu",
        "failed",
    ),
    "memory": ("requests", "failed", "peak_rss_mb", "peak_rss_mb_at_a_tenth"),
    "analysis": ("rows", "requests_csv_mb", "table_s", "cpu_s", "peak_rss_mb", "cores"),
    "images": (
        "load",
        "pictures",
        "pictures_per_s",
        "bytes_per_pixel",
        "kb_per_picture",
        "maker_cpu_ms",
        "made_ms",
        "waited_p95_ms",
        "late_p50_ms",
        "late_p99_ms",
        "late_max_ms",
        "busy_p99_ms",
        "busy_max_ms",
        "rss_mb",
        "rss_mb_at_a_tenth",
        "maker_rss_mb",
    ),
    "beside": ("streams", "beside", "captions", "request_kb", "prepare_p95_ms", "peak_rss_mb", *_COST, *_TIMES),
    "veth": ("streams", *_COST, *_TIMES, "marks"),
    **dict.fromkeys(_ONE_CORE, ("run", "users", *_RATES, *_COST, *_TIMES)),
    "rows": (
        "load",
        "rows_per_s",
        "seconds",
        "master_cpu",
        "master_us_per_row",
        "master_rss_mb",
        "workers_cpu",
        "others_cpu",
        "answered",
        "rows",
        "lost",
        "twice",
    ),
}


def cell(value: Any) -> str:
    """Three significant digits below 1000, whole numbers above; blank for unknown."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Markdown; a column that no row has is left out."""
    shown = [name for name in columns if any(row.get(name) is not None for row in rows)]
    lines = ["| " + " | ".join(shown) + " |", "|" + " --- |" * len(shown)]
    lines += ["| " + " | ".join(cell(row.get(name)) for name in shown) + " |" for row in rows]
    return "\n".join(lines)


def _verdict(good: bool, text: str) -> str:
    return f"{'reached' if good else 'NOT REACHED':<12} {text}"


@dataclass(frozen=True)
class Target:
    """One promise: which figure of which row must be at least or at most what."""

    section: str
    row: Mapping[str, Any]  # cells that choose the row
    figure: str
    limit: float
    at_least: bool = False

    def value(self, results: Results) -> Any:
        for row in results.get(self.section, ()):
            if all(row.get(name) == wanted for name, wanted in self.row.items()):
                return row.get(self.figure)
        return None

    def line(self, results: Results) -> str | None:
        """Reached or not, with the value; ``None`` where its section was not run."""
        if not results.get(self.section):
            return None
        value = self.value(results)
        where = " ".join(f"{name}={wanted}" for name, wanted in self.row.items())
        wanted = f"{self.section} {where} {self.figure} {'≥' if self.at_least else '≤'} {self.limit:g}"
        if value is None:
            return f"UNKNOWN      {wanted}: not measured"
        # An error is wanted small in both directions.
        good = value >= self.limit if self.at_least else abs(value) <= self.limit
        return _verdict(good, f"{wanted}: {value:.4g}")


def _at_512(in_step: bool) -> list[Target]:
    row = {"streams": 512, "in_step": in_step}
    return [
        Target("paced", row, "cpu_us_per_token", 15.0),
        Target("paced", row, "cpu_us_per_token", 12.0),
        Target("paced", row, "ttft_p95_error_ms", 1.0),
        Target("paced", row, "lag_p95_ms", 0.1),
        Target("paced", row, "driven", 0.97, at_least=True),
    ]


TARGETS = (
    *_at_512(False),
    *_at_512(True),
    *(
        target
        for streams in (32, 128)
        for target in (
            Target("truth", {"streams": streams}, "first_lag_p95_ms", 2.0),
            Target("truth", {"streams": streams}, "tpot_error_p95", 0.01),
            Target("truth", {"streams": streams}, "tokens_exact", 1, at_least=True),
        )
    ),
    Target("veth", {"streams": 64}, "ttft_p95_error_ms", 0.5),
    Target("veth", {"streams": 256}, "ttft_p95_error_ms", 0.5),
    Target("unpaced", {"load": "64 streams x 256 tokens"}, "tokens_per_s", 350_000, at_least=True),
    Target("unpaced", {"load": "64 users, one token"}, "requests_per_s", 6_000, at_least=True),
    Target("unpaced", {"load": "64 users, one token"}, "requests_per_s", 20_000, at_least=True),
    Target("memory", {}, "peak_rss_mb", 150.0),
    Target("analysis", {}, "table_s", 20.0),
    Target("analysis", {}, "peak_rss_mb", 2_000.0),
    Target("images", {"load": "500,000 pixels JPEG"}, "busy_p99_ms", 1.0),
    Target("images", {"load": "3,136 to 500,000 pixels JPEG"}, "rss_mb", 100.0),
    Target("beside", {"beside": 16}, "ttft_p95_error_ms", 2.0),
    Target("start-up", {}, "first_request_s", 2.0),
    *(Target(section, {"run": run}, "ttft_p95_error_ms", 1.0) for section in _ONE_CORE for run in (1, 2, 3)),
    *(Target("arrivals", {"run": run}, "requests_per_s", 1_980, at_least=True) for run in (1, 2, 3)),
    *(
        target
        for load in ("closed", "open")
        for target in (
            Target("rows", {"load": load}, "rows_per_s", 1_990, at_least=True),
            Target("rows", {"load": load}, "master_cpu", 0.05),
            Target("rows", {"load": load}, "lost", 0),
        )
    ),
)


def verdicts(results: Results) -> list[str]:
    """One line a target, and one more where something else ran: then only reached targets say anything."""
    busy = max((row.get("others_cpu") or 0.0 for rows in results.values() for row in rows), default=0.0)
    lines = (
        [f"CAUTION      other programs used up to {busy:.2f} cores meanwhile: repeat on an idle machine"]
        if busy > OTHERS_LIMIT
        else []
    )
    lines += [line for target in TARGETS if (line := target.line(results)) is not None]
    return lines + [line for extra in _EXTRA if (line := extra(results)) is not None]


def _no_heavy_imports(results: Results) -> str | None:
    if not results.get("start-up"):
        return None
    heavy = results["start-up"][0]["heavy_imports"].split()
    bad = [name for name in heavy if name in ("pandas", "transformers")]
    return _verdict(not bad, f"neither pandas nor transformers is imported: {' '.join(bad) or 'neither'}")


def _marked_at_512(results: Results) -> str | None:
    for row in results.get("veth", ()):
        if row["streams"] == 512:
            marks = row["marks"] or "no mark"
            return _verdict("process" in marks, f"veth streams=512 is marked and asks for another process: {marks}")
    return None


_EXTRA: tuple[Callable[[Results], str | None], ...] = (_no_heavy_imports, _marked_at_512)


def beside_peers(results: Results) -> str:
    """Our figures as a row above those of the other tools."""
    ours: Row = {"tool": "tokenswarm, whole Locust process (this run)"}
    for row in results.get("unpaced", ()):
        if row["load"].startswith("64 streams"):
            ours |= {"tokens_per_s": row["tokens_per_s"], "cpu_us_per_token": row["cpu_us_per_token"]}
        else:
            ours["requests_per_s"] = row["requests_per_s"]
    for row in results.get("memory", ()):
        ours["peak_rss_mb"] = row["peak_rss_mb"]
    for row in results.get("start-up", ()):
        ours["start_up_s"] = row["first_request_s"]
    for row in results.get("paced", ()):
        if row["in_step"]:
            ours[f"ttft_p95_error_ms_{row['streams']}"] = row["ttft_p95_error_ms"]
            ours[f"cpu_us_at_{row['streams']}"] = row["cpu_us_per_token"]
    rows = [ours, *peers.load()]
    return table(rows, [name for name in peers.load()[0] if name != "ttft_within_5_percent_up_to"])


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("locust", "gevent", "geventhttpclient", "msgspec")},
        "commit": commit.stdout.strip() or None,
        "load_average": os.getloadavg()[0],
    }


def write(folder: Path, results: Results) -> None:
    """``bench.json`` with every figure, ``bench.md`` with what the terminal shows."""
    content = {"machine": machine(), "results": results, "targets": verdicts(results)}
    (folder / "bench.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "bench.md").write_text(text(results) + "\n", encoding="utf-8")


def text(results: Results) -> str:
    parts = [f"## {name}\n\n{table(rows, COLUMNS[name])}" for name, rows in results.items() if rows]
    if any(results.get(name) for name in ("unpaced", "paced", "memory", "start-up")):
        parts.append(
            f"## Beside other tools (streams in step; another machine of the same kind)\n\n{beside_peers(results)}"
        )
    if lines := verdicts(results):
        parts.append("## Targets\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts)
