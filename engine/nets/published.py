"""Published: tensors of a drafter that others trained, checked by name and by shape. Knows files; knows no net.

Engines that skip a name that they do not know serve random weights in its place. Here every name must be known and none may be missing.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

PICKLED = (".bin", ".pt", ".pth")


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors in the folder's safetensors files, by name. Raises `ValueError` when there are none or a name stands twice."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(why_no_weights(folder))
    found: dict[str, torch.Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as stored:
                for name in stored.keys():  # noqa: SIM118, it is no dictionary
                    if name in found:
                        raise ValueError(f"{folder} holds the tensor {name} in two files. Keep one of them.")
                    found[name] = stored.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path} cannot be read as safetensors: {error}. Fetch it anew.") from error
    return found


def why_no_weights(folder: Path) -> str:
    """A sentence for a folder without safetensors."""
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED)
    if pickled:
        return (
            f"{folder} holds pickled weights ({pickled[0]}), which can run code. Only safetensors are loaded. "
            f"Convert them with `python -m engine convert {folder} NEW_FOLDER`."
        )
    return f"{folder} holds no safetensors file. Fetch the drafter's weights."


def refuse_other_tensors(
    folder: Path,
    found: Mapping[str, torch.Tensor],
    wanted: Mapping[str, tuple[int, ...]],
    optional: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Raises `ValueError` unless `found` has all of `wanted` and beside it only `optional`, each in its shape."""
    known = {**wanted, **(optional or {})}
    for name in sorted(found.keys() - known.keys()):
        raise ValueError(f"{folder} holds the tensor {name}, which this format does not have. It has {listed(known)}.")
    for name in sorted(wanted.keys() - found.keys()):
        raise ValueError(f"{folder} lacks the tensor {name}. Fetch its files anew.")
    for name, tensor in found.items():
        if tuple(tensor.shape) != known[name]:
            raise ValueError(
                f"{folder} holds {name} in the shape {list(tensor.shape)}, and its config and the target need "
                f"{list(known[name])}. Use the drafter that was trained for this target."
            )


def listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names))
