"""Experiments: what may be wrong with a learned drafter, each with a repair to try. Knows nets; knows no text and no verdict."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from engine.forward.llama_layer import Rotary
from engine.forward.session import default_feature_layers
from engine.lab.pays.followed import DrafterInputChange, layers_read_by_net
from engine.models.pairs import LoadedPair
from engine.nets import Net
from engine.nets.dflash import DFlash
from engine.nets.eagle import Eagle
from engine.nets.parallel import Parallel
from engine.nets.specblock import SpecBlock

THETAS = (1e4, 1e5, 5e5, 1e6, 5e6, 1e7)  # that published models and drafters use
WINDOWS = (128, 512)  # tokens
AT_ONCE = 6  # depths that a drafter of one depth is asked about in one forward

CAUSES = {
    "layers": "it was trained on other feature layers",
    "shifted": "its tokens are shifted by one",
    "embedding": "its embedding is not the target's",
    "head": "its head is wrong",
    "vocabulary": "its vocabulary map is off",
    "rope": "its rope settings are wrong",
    "anchors": "its config is silent about anchors",
    "steps": "it guesses all depths at once and is run step by step",
    "context": "contexts are longer than those it was trained for",
    # No experiment repairs these
    "hardly": "the drafter was hardly trained",
    "target": "the drafter was trained for another target: this one was fine-tuned, quantised or rotated since",
    "text": "the drafter was trained on other text than the target writes here",
}


@dataclass(frozen=True, eq=False)
class RepairExperiment:
    """A repair to try, in words that follow "with", and which of `CAUSES` it would prove.

    `net` is what drafts, and `input_change` how it is shown a text. Its favourites are read `depth_offset` by one depth, or
    `map_token_ids`. It is judged behind contexts of more than `min_context_tokens` tokens alone.
    """

    cause: str
    repair: str
    net: Net
    input_change: DrafterInputChange = field(default_factory=DrafterInputChange)
    depth_offset: int = 0
    map_token_ids: Callable[[np.ndarray], np.ndarray] | None = None
    min_context_tokens: int = 0


def list_repair_experiments(
    pair: LoadedPair, net: Net, trained_context_length: int, longest_context: int
) -> Iterator[RepairExperiment]:
    """What can be tried with this net. The `longest_context` context and the `trained_context_length` one, 0 where nobody says it,
    are in tokens.
    """
    yield from list_layer_experiments(net, pair.target.config.num_hidden_layers)
    yield RepairExperiment("shifted", "the features of the token before", net, DrafterInputChange(feature_lag=1))
    yield RepairExperiment("shifted", "the features of the token itself", net, DrafterInputChange(feature_lag=-1))
    yield RepairExperiment("shifted", "every guess taken for one place later", net, depth_offset=1)
    yield RepairExperiment("shifted", "every guess taken for one place earlier", net, depth_offset=-1)
    yield from list_embedding_and_head_experiments(pair, net)
    yield from list_vocabulary_map_experiments(net)
    yield from list_rope_experiments(pair, net)
    yield from list_block_drafting_experiments(net)
    for window in WINDOWS:
        # Within its training a drafter needs what a window hides, and little more than a window hides little
        behind = max(2 * window, trained_context_length)
        if behind < longest_context:
            repair = f"the last {window} tokens alone, at positions from 0 on"
            yield RepairExperiment(
                "context", repair, net, DrafterInputChange(context_window=window), min_context_tokens=behind
            )


def list_layer_experiments(net: Net, target_layer_count: int) -> Iterator[RepairExperiment]:
    """Experiments with the layers beside those that the net reads, and with the layers that are usually read."""
    read = layers_read_by_net(net, target_layer_count)
    if net.config.kind == "medusa":
        return  # it reads what the target's head reads
    tried = [tuple(layer + step for layer in read) for step in (-1, 1)]
    tried += [default_feature_layers(target_layer_count), (2, target_layer_count // 2, target_layer_count - 3)]
    for other in dict.fromkeys(tried):
        if other != read and len(other) == len(read) and min(other) >= 1 and max(other) < max(2, target_layer_count):
            yield RepairExperiment(
                "layers", f"the layers {', '.join(map(str, other))}", net, DrafterInputChange(target_layers=other)
            )


def layers_needed_by_experiments(net: Net, target_layer_count: int) -> tuple[int, ...]:
    """The layers, in ascending order, whose outputs some experiment shows the net, of a target with so many."""
    tried = [each.input_change.target_layers for each in list_layer_experiments(net, target_layer_count)]
    return tuple(sorted({layer for group in (layers_read_by_net(net, target_layer_count), *tried) for layer in group}))


def list_embedding_and_head_experiments(pair: LoadedPair, net: Net) -> Iterator[RepairExperiment]:
    """The target's own embedding and head, where the net has others of that width."""
    model = pair.target.model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight.float()
    if embedding.shape == net.embedding.shape and not torch.equal(net.embedding.float(), embedding.float()):
        yield RepairExperiment(
            "embedding", "the target's embedding", shallow_copy_net_with_attributes(net, embedding=embedding.float())
        )
    if head.shape[1] != net.config.hidden or not isinstance(net, Eagle | SpecBlock | DFlash):
        return
    rows = head if isinstance(net, SpecBlock) else head[net.vocabulary]
    if not isinstance(net, DFlash):
        yield RepairExperiment("head", "the target's head", shallow_copy_net_with_attributes(net, unembed=rows))
    elif not torch.equal(net.head.float(), rows):
        yield RepairExperiment("head", "the target's head", shallow_copy_net_with_attributes(net, head=rows))


def list_vocabulary_map_experiments(net: Net) -> Iterator[RepairExperiment]:
    """Other readings of the map from the drafter's tokens to the target's, where there is one."""
    vocabulary = getattr(net, "vocabulary", None)
    if vocabulary is None or len(vocabulary) == net.config.vocab:
        return
    ids = vocabulary.cpu().numpy()
    own = np.zeros(net.config.vocab, dtype=np.int64)
    own[ids] = np.arange(len(ids))
    readings = {
        "its map in ascending order": np.sort(ids),
        "its map one entry on": np.roll(ids, 1),
        "its map one entry back": np.roll(ids, -1),
        "every id of its map one higher": ids + 1,
        "every id of its map one lower": ids - 1,
        "no map": np.arange(len(ids)),
    }
    for repair, reading in readings.items():
        if not np.array_equal(reading, ids):
            yield RepairExperiment(
                "vocabulary", repair, net, map_token_ids=lambda guessed, reading=reading: reading[own[guessed]]
            )


def list_rope_experiments(pair: LoadedPair, net: Net) -> Iterator[RepairExperiment]:
    """Other bases of the rotary embedding, and the target's own settings."""
    rotary = getattr(net, "rotary", None)
    if rotary is None:
        return
    inverse = rotary.inverse[: len(rotary.inverse) // 2]
    tried = {f"rope_theta {theta:.0f}": Rotary.from_theta(2 * len(inverse), theta) for theta in THETAS}
    own = getattr(getattr(pair.target.model, "model", None), "rotary_emb", None)
    if own is not None and len(own.inv_freq) == len(inverse):
        tried["the target's rope settings"] = Rotary.from_transformers(own)
    for repair, other in tried.items():
        same = torch.allclose(other.inverse.to(inverse.device)[: len(inverse)], inverse, rtol=1e-4)
        if not same or other.scaling != rotary.scaling:
            yield RepairExperiment(
                "rope", repair, shallow_copy_net_with_attributes(net, rotary=other.to(inverse.device))
            )


def list_block_drafting_experiments(net: Net) -> Iterator[RepairExperiment]:
    """Experiments with how a block drafter drafts: the other slot that its guesses begin with, and all depths in one forward."""
    if isinstance(net, DFlash) and net.config.kind == "dflash":
        other = shallow_copy_net_with_attributes(
            net, sizes=replace(net.sizes, anchor_slot_predicts=not net.sizes.anchor_slot_predicts)
        )
        where = (
            "from the anchor's own slot on"
            if other.sizes.anchor_slot_predicts
            else "from the slot behind the anchor on"
        )
        yield RepairExperiment("anchors", f"guesses {where}", other)
    if net.config.depth > 1 or not isinstance(net, DFlash | Parallel):
        return
    if isinstance(net, DFlash):
        other = shallow_copy_net_with_attributes(
            net, sizes=replace(net.sizes, block_size=AT_ONCE + net.sizes.skipped_slots)
        )
    else:
        other = shallow_copy_net_with_attributes(net, config=replace(net.config, depth=AT_ONCE))
    yield RepairExperiment("steps", f"{AT_ONCE} depths from one forward", other)


def shallow_copy_net_with_attributes(net: Net, **attributes: object) -> Net:
    """The net with other values of these attributes. All its other weights are the net's own, not copies."""
    other = copy.copy(net)
    for name in ("_modules", "_parameters", "_buffers"):
        other.__dict__[name] = dict(net.__dict__[name])
    for name, value in attributes.items():
        if name in other._parameters and isinstance(value, torch.Tensor):
            value = torch.nn.Parameter(value, requires_grad=False)
        setattr(other, name, value)
    if isinstance(other, DFlash):
        other.config = replace(other.config, depth=other.sizes.block_size - other.sizes.skipped_slots)
    return other.pack_compiled_on_cpu()
