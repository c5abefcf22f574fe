"""Nets: the learned drafters' weights. One file per net and one line in `NETS`; `engine/drafters/` makes drafters of them."""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from transformers import PreTrainedModel

from engine.nets.eagle import Eagle
from engine.nets.layer import ANEW, Net, NetConfig
from engine.nets.medusa import Medusa
from engine.nets.parallel import Parallel
from engine.nets.specblock import SpecBlock

NETS: dict[str, type[Net]] = {"medusa": Medusa, "eagle": Eagle, "parallel": Parallel, "specblock": SpecBlock}


class StoredNets(Mapping[str, Net]):
    """Nets by name, each loaded and packed when it is first asked for, once, from any thread."""

    def __init__(self, folders: dict[str, tuple[type[Net], Path]], embedding: torch.Tensor, head: torch.Tensor):
        self.folders, self.weights = folders, (embedding, head)
        self.lock, self.loaded = threading.Lock(), {}

    def __getitem__(self, name: str) -> Net:
        """Raises `KeyError` for an unknown name and `ValueError` when the files do not hold such a net."""
        kind, folder = self.folders[name]
        with self.lock, torch.inference_mode(False):  # or a net could not learn that a race was the first to use
            if name not in self.loaded:
                self.loaded[name] = kind.load(folder, *self.weights)
        return self.loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.folders  # and nothing is loaded for the answer

    def __iter__(self) -> Iterator[str]:
        return iter(self.folders)

    def __len__(self) -> int:
        return len(self.folders)


def load_nets(folder: Path, target: PreTrainedModel) -> Mapping[str, Net]:
    """Every net in `folder/NAME/`, for this target; weights are read when a net is first used.

    Raises `ValueError` when one does not fit the target.
    """
    embedding, head = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    found = {}
    for path in sorted(folder.glob("*/config.json")):
        try:
            kind = json.loads(path.read_text(encoding="utf-8"))["kind"]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} holds no drafter's sizes: {error}. {ANEW}") from error
        if kind not in NETS:
            raise ValueError(f"{path} names an unknown drafter {kind!r}. Available: {', '.join(NETS)}.")
        NetConfig.fitting(path.parent, embedding)
        found[path.parent.name] = NETS[kind], path.parent
    return StoredNets(found, embedding, head)


__all__ = ["NETS", "Net", "NetConfig", "load_nets"]
