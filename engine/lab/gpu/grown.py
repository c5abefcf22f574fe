"""A large pair that writes: the default pair, grown to sizes that people serve without changing what its models compute.

Its forwards cost what forwards of those sizes cost, and it guesses as well as the default pair. So races of it are measured in full,
where a large pair with trained weights would have to be fetched. Its weights are those of
`engine.lab.train.pretrain.copy_weights_preserving_function`. Learned drafters grow with their target, and stay half as wide.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor
from transformers import LlamaConfig

from engine.forward.nf4.layers import install_nf4_few_rows_kernel
from engine.forward.runner import Runner
from engine.forward.session import default_feature_layers
from engine.lab.gpu.costs import build_llama_config, build_random_llama, count_matrix_parameters, quantise_to_nf4
from engine.lab.train.pretrain import copy_weights_preserving_function
from engine.models.loading import load_model, load_pair_anew
from engine.models.pairs import PAIRS, Checkpoint, LoadedPair
from engine.nets import Net
from engine.nets.dflash import DFlash

# Both grow from 4,096 tokens and heads of 64 numbers, and every head has keys and values of its own
TARGET = build_llama_config(hidden=5120, layers=26, heads=80, kv_heads=80, mlp=13_312, vocab=4096, tied=True)
DRAFTS = {  # one costs about what a layer or two of the target's would, as an EAGLE head does; one is a small model of its own
    "0.4B": build_llama_config(hidden=4096, layers=2, heads=64, kv_heads=64, mlp=11_264, vocab=4096, tied=True),
    "1B": build_llama_config(hidden=2048, layers=16, heads=32, kv_heads=32, mlp=8448, vocab=4096, tied=True),
}
LEARNED = ("eagle", "dspark", "dflash", "parallel", "medusa")  # drafters that grow
READING = ("fuse", "feat_proj", "fc")  # their matrices over the target's features


def map_layers_aligning_feature_layers(layer_count: int, larger_layer_count: int) -> list[int]:
    """Which of `larger_layer_count` layers each of `layer_count` becomes, so that the layers that drafters read say the same."""
    ends = [
        (0, 0),
        *zip(default_feature_layers(layer_count), default_feature_layers(larger_layer_count), strict=True),
        (layer_count, larger_layer_count),
    ]
    return [place + layer - first for (first, place), (last, _) in pairwise(ends) for layer in range(first, last)]


def repeat_matrix_blocks_averaging_inputs(
    weight: Tensor, copies: int, output_block_size: int, input_block_size: int
) -> Tensor:
    """`weight [out, in]` for inputs of which every block of `input_block_size` numbers stands `copies` times, a mean over these.

    Every block of `output_block_size` outputs stands so often too; 0 leaves them as they are.
    """
    wide = weight.view(len(weight), -1, 1, input_block_size).expand(-1, -1, copies, -1).flatten(1) / copies
    return (
        wide.view(-1, 1, output_block_size, wide.shape[1]).expand(-1, copies, -1, -1).flatten(0, 2)
        if output_block_size
        else wide
    )


def widen_drafter_weight(name: str, weight: Tensor, net: Net, copies: int) -> Tensor:
    """The weight of that name for a net and a target of which every hidden number stands `copies` times."""
    sizes, part = net.config, name.removesuffix(".weight").rpartition(".")[2]
    if weight.ndim == 1:
        return weight.repeat(copies) if len(weight) == sizes.hidden else weight  # a head's norm, a vocabulary
    if name.startswith("markov"):
        return weight
    if name == "embedding":
        return weight.repeat(1, copies)
    if (
        name == "narrow.weight"
    ):  # it reads the target's final norm, which `copy_weights_preserving_function` divides for the tied head
        return repeat_matrix_blocks_averaging_inputs(weight, copies, sizes.hidden, sizes.feature_size) * copies
    columns = sizes.feature_size if part in READING else sizes.mlp if part in ("down", "down_proj") else sizes.hidden
    rows = sizes.mlp if part in ("gate_up", "gate_proj", "up_proj") else sizes.hidden
    writes_tokens = part in ("unembed", "head") or name.startswith("unembeds")
    return repeat_matrix_blocks_averaging_inputs(weight, copies, 0 if writes_tokens else rows, columns)


def widen_drafter_net(net: Net, copies: int, target_layer_map: list[int]) -> Net:
    """The learned drafter for a target that grew into the layers `target_layer_map`, each hidden number `copies` times. It guesses
    the same.
    """
    sizes = {name: getattr(net.config, name) * copies for name in ("hidden", "heads", "mlp", "target_hidden")}
    tables = net.embedding.repeat(1, copies), net.head.repeat(1, copies) / copies
    if isinstance(net, DFlash):
        reads = tuple(target_layer_map[each - 1] + 1 for each in net.sizes.reads_features)
        form = replace(net.sizes, **sizes, kv_heads=net.sizes.kv_heads * copies, reads_features=reads)
        large: Net = type(net)(form, *tables, net.vocabulary, net.published)
    else:
        large = type(net)(replace(net.config, **sizes), *tables)
    weights = {name: widen_drafter_weight(name, each, net, copies) for name, each in net.state_dict().items()}
    large.load_state_dict(large.state_dict() | weights)  # shared tables are not among a net's own
    return large


def load_runner_enlarged_to_config(
    checkpoint: Checkpoint, larger_config: LlamaConfig, device: torch.device, layer_map: list[int] | None = None
) -> Runner:
    """The checkpoint's model in the shape of `larger_config`, in bfloat16. Raises what `build_random_llama` and
    `copy_weights_preserving_function` raise.
    """
    large = build_random_llama(larger_config, device)
    copy_weights_preserving_function(
        load_model(checkpoint, torch.device("cpu"), torch.float32, "none"), large, layer_map
    )
    return Runner(large)


def build_enlarged_pair(draft_size: str, device: torch.device, four_bit_target: bool = False) -> LoadedPair:
    """The default pair with `TARGET`, one of `DRAFTS` and the drafters in `LEARNED`. Counted shapes stay, as tokens a round do.

    With `four_bit_target` the target is in NF4, and our kernel takes its few rows where it can.
    """
    small = load_pair_anew(PAIRS["embedded"], str(device), "bf16")
    few = small.target.config
    places = map_layers_aligning_feature_layers(few.num_hidden_layers, TARGET.num_hidden_layers)
    target = load_runner_enlarged_to_config(small.pair.target_checkpoint, TARGET, device, places)
    if four_bit_target:
        quantise_to_nf4(target.model)
        install_nf4_few_rows_kernel(target.model)
        target = Runner(target.model)
    guessing = load_runner_enlarged_to_config(Checkpoint(str(small.pair.draft)), DRAFTS[draft_size], device)
    copies = TARGET.hidden_size // few.hidden_size
    nets = {name: widen_drafter_net(small.learned[name], copies, places) for name in LEARNED}
    learned = {name: net.prepare_for_drafting(device) for name, net in nets.items()}
    title = f"default pair grown to {count_matrix_parameters(TARGET) / 1e9:.1f}B{' in NF4' * four_bit_target}, draft {draft_size}"
    return replace(small, pair=replace(small.pair, title=title), target=target, draft=guessing, learned=learned)
