"""Nets: the learned drafters' weights. One file per net and one line in `NETS`; `engine/drafters/` makes drafters of them.

Drafters that others published are read from their own files (`PUBLISHED`), and take the place of the trained drafter of that name.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.nets.eagle import Eagle
from engine.nets.formats import PUBLISHED, assistant, mtp
from engine.nets.layer import ANEW, Net, NetConfig, embedding_and_head_of
from engine.nets.medusa import Medusa
from engine.nets.parallel import Parallel
from engine.nets.specblock import SpecBlock

NETS: dict[str, type[Net]] = {"medusa": Medusa, "eagle": Eagle, "parallel": Parallel, "specblock": SpecBlock}


# Makes a net of the files in a folder, for a target's embedding and head. Raises `ValueError` when they do not hold such a net.
NetLoader = Callable[[Path, Tensor, Tensor], Net]


class LazyNets(Mapping[str, Net]):
    """Nets by name, each loaded and packed when it is first asked for, once, from any thread."""

    def __init__(self, folders: dict[str, tuple[NetLoader, Path]], embedding: Tensor, head: Tensor):
        self.folders, self.weights = folders, (embedding, head)
        self.lock, self.loaded = threading.Lock(), {}

    def __getitem__(self, name: str) -> Net:
        """Raises `KeyError` for an unknown name and `ValueError` when the files do not hold such a net."""
        load, folder = self.folders[name]
        with self.lock, torch.inference_mode(False):  # or a net could not learn that a race was the first to use
            if name not in self.loaded:
                try:
                    self.loaded[name] = load(folder, *self.weights)
                except ValueError as error:
                    # A visitor reads it, and where the folder lies is the server's own business
                    raise ValueError(str(error).replace(str(folder), folder.name)) from error
        return self.loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.folders  # and nothing is loaded for the answer

    def __iter__(self) -> Iterator[str]:
        return iter(self.folders)

    def __len__(self) -> int:
        return len(self.folders)


def open_lazy_nets(
    folder: Path | None, target: PreTrainedModel, source: dict[str, Any] | None = None
) -> Mapping[str, Net]:
    """Every net in `folder/NAME/`, for this target, and its own MTP layers; weights are read when a net is first used.

    A published drafter's folder may have any name, and `folder` may be that folder. `source` is what `from_pretrained` found the
    target by; None reads no MTP layers. Raises `ValueError` when a drafter does not fit the target, and for two of one name.
    """
    embedding, head = embedding_and_head_of(target)
    found: dict[str, tuple[NetLoader, Path]] = {}
    own = None if source is None else mtp.find_mtp_layer_loader(target, source)
    if own and source:
        found["mtp"] = own, Path(source["pretrained_model_name_or_path"])
    for path in find_drafter_configs(folder) if folder else ():
        name, load = validate_and_find_net_loader(path, embedding, target)
        if name in found:
            raise ValueError(f"{found[name][1]} and {path.parent} both hold a drafter {name}. Keep one of them.")
        found[name] = load, path.parent
    return LazyNets(found, embedding, head)


def find_drafter_configs(folder: Path) -> list[Path]:
    """The configs of the drafters in a folder: its own where it is a drafter's, else those of the folders in it."""
    own = folder / "config.json"
    return [own] if own.is_file() else sorted(folder.glob("*/config.json"))


def validate_and_find_net_loader(
    config_file: Path, embedding: Tensor, target: PreTrainedModel
) -> tuple[str, NetLoader]:
    """The name of a config's drafter, and what loads it, for `embedding [V, H]`. Raises `ValueError` when it does not fit."""
    config, folder, layers = read_known_drafter_config(config_file), config_file.parent, target.config.num_hidden_layers
    if assistant.is_form_of(config):
        return "mtp", assistant.validate_config_and_make_loader(folder, config, target)
    name = next((each for each, form in PUBLISHED.items() if form.is_form_of(config)), "")
    if name:
        return name, PUBLISHED[name].validate_config_and_make_loader(folder, config, embedding, layers)
    NetConfig.load_and_check_target_sizes(folder, embedding)
    return folder.name, NETS[config["kind"]].load_for_drafting


def load_net_from_folder(folder: Path, target: PreTrainedModel) -> Net:
    """The net in a drafter's own folder, for this target. Raises `ValueError` when the folder holds none that fits it."""
    tables = embedding_and_head_of(target)
    _, load = validate_and_find_net_loader(folder / "config.json", tables[0], target)
    return load(folder, *tables)


def read_known_drafter_config(config_file: Path) -> dict:
    """The config in a file. Raises `ValueError` unless it is one of `PUBLISHED` or names a kind of `NETS`."""
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise TypeError("it holds no names and values")
        if any(form.is_form_of(config) for form in (assistant, *PUBLISHED.values())):
            return config
        kind = config["kind"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{config_file} holds no drafter's sizes: {error}. {ANEW}") from error
    if kind not in NETS:
        raise ValueError(f"{config_file} names an unknown drafter {kind!r}. Available: {', '.join(NETS)}.")
    return config
