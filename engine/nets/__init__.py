"""Nets: the learned drafters' weights. One file per net and one line in `NETS`; `engine/drafters/` makes drafters of them."""

import json
from pathlib import Path

from transformers import PreTrainedModel

from engine.nets.eagle import Eagle
from engine.nets.layer import Net, NetConfig
from engine.nets.medusa import Medusa
from engine.nets.parallel import Parallel
from engine.nets.specblock import SpecBlock

NETS: dict[str, type[Net]] = {"medusa": Medusa, "eagle": Eagle, "parallel": Parallel, "specblock": SpecBlock}


def load_nets(folder: Path, target: PreTrainedModel) -> dict[str, Net]:
    """Every net in `folder/NAME/`, for this target. Raises `ValueError` when one does not fit it."""
    embedding, head = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    found = {}
    for path in sorted(folder.glob("*/config.json")):
        kind = json.loads(path.read_text(encoding="utf-8")).get("kind")
        if kind not in NETS:
            raise ValueError(f"{path} names an unknown drafter {kind!r}. Available: {', '.join(NETS)}.")
        found[path.parent.name] = NETS[kind].load(path.parent, embedding, head)
    return found


__all__ = ["NETS", "Net", "NetConfig", "load_nets"]
