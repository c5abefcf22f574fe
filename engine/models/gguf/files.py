"""GGUF files: which file of a folder, of an installed package or of a sharded model is meant. Knows names; reads no file.

llama.cpp cuts a large model into shards, `NAME-00001-of-00003.gguf` and so on. The first one holds all values, and names them all.
"""

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

SUFFIX = ".gguf"
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def has_gguf_suffix(path: str) -> bool:
    return path.endswith(SUFFIX)


def shards_of(path: Path) -> list[Path]:
    """All files of the model that this one belongs to, the first one first. Raises `ValueError` where one is missing."""
    if (shard := SHARD.fullmatch(path.name)) is None:
        return [path]
    name, _, count = shard.groups()
    shards = [path.with_name(f"{name}-{number:05}-of-{count}{SUFFIX}") for number in range(1, int(count) + 1)]
    missing = [each.name for each in shards if not each.is_file()]
    if missing or not shards:
        raise ValueError(
            f"{path.name} is one of {int(count)} shards, and {', '.join(missing[:3]) or 'all of them'} "
            "cannot be found. Put all of them into one folder."
        )
    return shards


def find_single_gguf_model(paths: Sequence[Path], source_name: str) -> Path | None:
    """The one model among these files, by its first shard; None where none is GGUF. Raises `ValueError` for several models."""
    models = sorted({shards_of(each)[0] for each in paths if each.suffix == SUFFIX})
    if len(models) > 1:
        raise ValueError(
            f"{source_name} holds {len(models)} GGUF models, {', '.join(each.name for each in models[:4])}: name one of the files."
        )
    return models[0] if models else None


def gguf_in_folder(folder: Path) -> Path | None:
    """The GGUF model in a folder, None where there is none. Raises `ValueError` for several."""
    return find_single_gguf_model([*folder.glob(f"*{SUFFIX}")], folder.name)


def gguf_in_package(package_name: str) -> Path | None:
    """The GGUF model that the installed package of that name holds, None without the package or the model. Nothing is imported."""
    if not re.fullmatch(r"[\w.-]+", package_name):
        return None
    try:
        listed = files(package_name) or []
    except PackageNotFoundError:
        return None
    paths = [Path(str(each.locate())) for each in listed if each.suffix == SUFFIX]
    return find_single_gguf_model([each for each in paths if each.is_file()], f"The package {package_name}")


def gguf_title_of(path: str) -> str:
    """What a person calls the model in a GGUF file: the file's name without its ending and its shard."""
    shard = SHARD.fullmatch(name := Path(path).name)
    return shard[1] if shard else name.removesuffix(SUFFIX)
