"""Finds out which tool wrote a file of results, by what it holds, and reads it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from analysis.aiperf_result import (
    companion_of,
    is_aiperf,
    is_aiperf_csv,
    is_aiperf_record,
    read_aiperf,
    read_aiperf_csv,
)
from analysis.genai_bench import is_experiment, is_genai_bench, read_genai_bench
from analysis.guidellm_result import is_guidellm, read_guidellm
from analysis.imported import WANTED, Document, Imported, documents_of, outcome_of
from analysis.inference_perf_result import is_inference_perf, read_inference_perf
from analysis.outcome import Note, Outcome
from analysis.sglang_bench import is_sglang_bench, read_sglang_bench
from analysis.vllm_bench import is_vllm_bench, read_vllm_bench
from tokenswarm.errors import RunFolderError

Found = list[tuple[Path, Document]]
_ENDINGS = (".json", ".jsonl")


def holds_json(path: Path) -> bool:
    """Whether a file begins as an object of JSON does."""
    try:
        with path.open("rb") as file:
            return file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    except OSError:
        return False


def is_other_csv(titles: list[str]) -> bool:
    """Whether a header is that of another tool's CSV file."""
    return is_aiperf_csv(titles)


def outcome_of_csv(path: Path) -> Outcome:
    """Of a file for which :func:`is_other_csv` holds."""
    return outcome_of(read_aiperf_csv(path), path)


def outcome_of_json(path: Path) -> Outcome:
    """Raises ``RunFolderError`` with one line where the file is damaged or no tool's."""
    documents, left_out = documents_of(path)
    found = {
        tool: [(path, one) for one in documents if tool_of(one) == tool] for tool in map(tool_of, documents) if tool
    }
    if not found:
        keys = ", ".join(list(documents[0])[:8])
        raise RunFolderError(
            f"{path}: wanted {WANTED}, but it is none of these; it has the keys {keys[:150] or '(none)'}"
        )
    return _outcome(path, found, left_out)


def outcome_of_results(folder: Path) -> Outcome | None:
    """All results of one tool in a folder, a level each; ``None`` where there is none.

    Files that are no tool's are passed over; damaged ones are named, or raised where nothing else is there.
    """
    found: dict[str, Found] = defaultdict(list)
    left_out, damaged = [], []
    for path in sorted(path for path in folder.iterdir() if path.name.endswith(_ENDINGS) and path.is_file()):
        try:
            documents, notes = documents_of(path)
        except RunFolderError as problem:
            damaged.append(problem)
            continue
        for document in documents:
            if tool := tool_of(document):
                found[tool].append((path, document))
        left_out += notes
    if not found and damaged:
        raise damaged[0]
    left_out += [f"left out: {problem}" for problem in damaged]
    return _outcome(folder, found, left_out) if found else None


def holds_results(folder: Path) -> bool:
    """Whether a folder has results of another tool, or files that look like damaged ones."""
    try:
        return outcome_of_results(folder) is not None
    except RunFolderError:
        return True


def tool_of(document: Document) -> str:
    """Name of the tool that wrote a document; empty for none."""
    for tool, fits in (
        ("vllm bench serve", is_vllm_bench),
        ("SGLang bench_serving", is_sglang_bench),
        ("GuideLLM", is_guidellm),
        ("AIPerf", is_aiperf),
        ("AIPerf", is_aiperf_record),
        ("inference-perf", is_inference_perf),
        ("genai-bench", is_genai_bench),
    ):
        if fits(document):
            return tool
    return ""


def _outcome(path: Path, found: dict[str, Found], left_out: list[str]) -> Outcome:
    if len(found) > 1:
        raise RunFolderError(f"{path}: holds results of {' and '.join(sorted(found))}: name one of the files")
    ((tool, entries),) = found.items()
    imported = _read(tool, path, entries)
    imported.notes += [Note("input", text) for text in left_out]
    return outcome_of(imported, path)


def _read(tool: str, path: Path, entries: Found) -> Imported:
    documents = [document for _, document in entries]
    match tool:
        case "vllm bench serve":
            return read_vllm_bench(documents)
        case "SGLang bench_serving":
            return read_sglang_bench(documents)
        case "GuideLLM":
            return _merged([read_guidellm(document) for document in documents])
        case "AIPerf":
            return _aiperf(entries)
        case "inference-perf":
            return read_inference_perf(entries)
        case _:
            return read_genai_bench(documents, _experiment(path))


def _aiperf(entries: Found) -> Imported:
    """Summaries with the requests beside them, and requests without a summary."""
    by_path: dict[Path, list[Document]] = defaultdict(list)
    for path, document in entries:
        by_path[path].append(document)
    runs = []
    for path in by_path:
        lone = is_aiperf_record(by_path[path][0])
        beside = by_path.get(companion_of(path)) or _beside(companion_of(path))
        if lone and beside and companion_of(path) in by_path:
            continue  # it is read with its summary
        runs.append(
            read_aiperf(beside[0] if beside else {}, by_path[path]) if lone else read_aiperf(by_path[path][0], beside)
        )
    return _merged(runs)


def _beside(path: Path) -> list[Document]:
    """What the named file's companion holds; nothing where it is missing or damaged."""
    if not path.is_file():
        return []
    try:
        return [one for one in documents_of(path)[0] if tool_of(one) == "AIPerf"]
    except RunFolderError:
        return []


def _experiment(path: Path) -> Document:
    """genai-bench's description beside the results."""
    described = (path if path.is_dir() else path.parent) / "experiment_metadata.json"
    if not described.is_file():
        return {}
    try:
        return next((one for one in documents_of(described)[0] if is_experiment(one)), {})
    except RunFolderError:
        return {}


def _merged(parts: list[Imported]) -> Imported:
    whole = parts[0]
    for part in parts[1:]:
        whole.levels += part.levels
        whole.failures += part.failures
        whole.notes += [note for note in part.notes if note not in whole.notes]
    return whole
