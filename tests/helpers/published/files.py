"""A published drafter's folder."""

import json

import torch
from safetensors.torch import save_file


def write(folder, config: dict, found: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(found, folder / "model.safetensors")
