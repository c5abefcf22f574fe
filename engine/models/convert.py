"""`python -m engine convert`: a drafter's pickled weights as safetensors. Tensors alone are taken out, so that no code can run."""

import pickle
import shutil
from argparse import Namespace
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine.nets.formats.checked import PICKLED


def list_pickled_files(source: Path) -> list[Path]:
    """The pickled files that `source` is or holds. Raises `ValueError` when there is none."""
    found = [source] if source.is_file() else sorted(source.iterdir()) if source.is_dir() else []
    files = [path for path in found if path.suffix in PICKLED and path.is_file()]
    if not files:
        raise ValueError(
            f"{source} is no file that ends in {', '.join(PICKLED)}, and no folder with one. Check the path."
        )
    return files


def load_pickled_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a pickled file, by name. Raises `ValueError` when it holds anything else."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} holds more than tensors, or is damaged, and was not loaded: {said}.") from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(each, torch.Tensor) for name, each in found.items()
    ):
        raise ValueError(f"{path} holds no tensors by name. Give the file of the drafter's weights.")
    return found


def convert_to_safetensors(source: Path, output_folder: Path) -> int:
    """Write the tensors of `source` to `output_folder/model.safetensors`, and its config beside them. Returns how many there are.

    Raises `ValueError` when `source` cannot be read, when a name stands in two files, or when `output_folder` has weights already.
    """
    written = output_folder / "model.safetensors"
    if any(output_folder.glob("*.safetensors")):
        raise ValueError(f"{output_folder} holds safetensors already. Choose another folder.")
    found: dict[str, torch.Tensor] = {}
    for path in list_pickled_files(source):
        tensors = load_pickled_tensors(path)
        for name in tensors.keys() & found.keys():
            raise ValueError(f"{source} holds the tensor {name} in two files. Give one of the files.")
        found |= {name: each.detach().clone().contiguous() for name, each in tensors.items()}
    config = (source if source.is_dir() else source.parent) / "config.json"
    if not config.is_file():
        raise ValueError(f"There is no {config}, without which weights have no meaning. Fetch it beside them.")
    output_folder.mkdir(parents=True, exist_ok=True)
    if not (output_folder / "config.json").exists():
        shutil.copyfile(config, output_folder / "config.json")
    save_file(found, written)
    return len(found)


def main(options: Namespace) -> None:
    count = convert_to_safetensors(options.source, options.folder)
    print(f"Wrote {count} tensors to {options.folder / 'model.safetensors'}.")
