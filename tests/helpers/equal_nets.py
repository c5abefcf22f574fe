"""Cases of equality: nets in compiled loops and eight bits. They differ from their references only by rounding.

Where the reference's matrices are rounded first, as the compiled loops round them, almost no difference is left.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from engine.drafters import DRAFTERS
from engine.drafters.parallel import ParallelDrafter
from engine.drafters.specblock import SpecBlockDrafter
from engine.forward.llama_eight_bit import EightBitLlama
from engine.forward.runner import Runner
from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark
from engine.nets.eagle import EagleSession
from engine.nets.eagle_compiled import CompiledEagle
from engine.nets.medusa import Medusa
from engine.tree import DraftTree
from helpers.equality import Case, Cases, Compared, on_grid, share, spread
from helpers.families import MODELS, answers, expected_of, random_model, unlightened
from helpers.learned import WIDTHS, block_net, pair_with, parallel_net, parallel_rounds, specblock_net, specblock_rounds
from helpers.pairs import tiny_llama, tiny_pair

ROUNDING = {"within": 0.1, "beyond": 1e-3}


def eagle(width: str) -> Iterator[Compared]:
    """Folded norms, tables of tokens, windows and the drafter's own vocabulary."""
    net = pair_with("eagle", width=width).net("eagle")
    for name, weight in net.state_dict().items():
        if "norm" in name:
            weight.add_(0.01 * torch.arange(len(weight)))
    features = torch.randn(6, 4, 64, generator=torch.Generator().manual_seed(3))
    visible = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1]]).bool()

    def said(session) -> torch.Tensor:
        with torch.inference_mode():
            session.log_q_of_root([9, 8, 7, 6], features[:4], 1, 0)
            root = session.log_q_of_root([1, 8], features[4:], 5, 3)
            level = session.log_q_of_level([5, 9, 7], [0, 0, 0], [7, 7, 7], torch.eye(3, dtype=torch.bool), 2)
            seen = torch.cat([visible, torch.eye(3).bool()], 1)
            below = session.log_q_of_level([3, 2, 4], [1, 2, 1], [8, 8, 8], seen, 2)
            return torch.cat([root, level, below]).exp()

    yield Compared(said(EagleSession(net, 16)), said(CompiledEagle(net).open_session(16)), **ROUNDING, apart=share)
    with torch.no_grad():
        on_grid(net.layer.qkv.weight[:, net.config.hidden :], net.norm_feature.weight)
        on_grid(net.layer.gate_up.weight, net.layer.norm.weight)
        on_grid(net.unembed, net.norm_out.weight)
        for matrix in (net.fuse.weight, net.layer.out.weight, net.layer.down.weight):
            on_grid(matrix)
    yield Compared(said(EagleSession(net, 16)), said(CompiledEagle(net).open_session(16)), within=3e-4, apart=share)


def sharing_medusa(width: str) -> Iterator[Compared]:
    """Heads that guess some tokens, by rows of the target's own head."""
    return medusa_heads(pair_with("medusa", width=width, own_vocab=120).net("medusa"))


def medusa(width: str) -> Iterator[Compared]:
    return medusa_heads(pair_with("medusa", width=width).net("medusa"))


def medusa_heads(net: Medusa) -> Iterator[Compared]:
    final = torch.randn(3, 64, generator=torch.Generator().manual_seed(5))

    def exact(k: int) -> torch.Tensor:
        own = net(final, k).softmax(-1)
        if not net.config.own_vocab:
            return own
        return torch.zeros(len(own), net.config.vocab).index_copy_(1, net.vocabulary, own)

    assert torch.allclose(net.log_q(final, 0).exp(), exact(0), atol=1e-6)  # nothing is packed yet
    net.pack_compiled_on_cpu()
    for k in range(3):
        yield Compared(exact(k), net.log_q(final, k).exp(), **ROUNDING, apart=share)
    for matrix in (
        *(block.weight for block in net.blocks),
        *(net.unembeds or [net.head]),
        *([net.narrow.weight] if net.narrow else []),
    ):
        on_grid(matrix)
    net.pack_compiled_on_cpu()
    for k in range(3):
        yield Compared(exact(k), net.log_q(final, k).exp(), within=3e-4, apart=share)


def parallel(width: str) -> Iterator[Compared]:
    """Round after round, from a first entry that has no token before it.

    Compiled loops merge the features' two matrices into one, so one of the two only picks numbers here.
    """
    net = copy.deepcopy(parallel_net(tiny_llama(0), width))
    hidden, reads = net.config.hidden, net.config.feature_size
    feat_proj = torch.zeros(hidden, 3 * reads)
    feat_proj[:, reads : reads + hidden] = torch.eye(hidden)
    net.feat_proj.weight.copy_(feat_proj)

    def said(packed: bool) -> torch.Tensor:
        net.compiled = None
        if packed:
            net.pack_compiled_on_cpu()
        drafter, found = ParallelDrafter(pair := replace(tiny_pair(), learned={"parallel": net}), 120), []
        for number, (_, tree) in enumerate(parallel_rounds(pair, drafter, [40])):
            if number != 2:
                found.append(drafter.log_q(tree, [0, 1, 2, 3]).exp())
        return torch.cat(found)

    yield Compared(said(False), said(True), **ROUNDING, apart=share)
    on_grid(net.in_proj.weight[:, hidden:])
    on_grid(net.head, net.final_norm)
    for layer, norm in zip(net.layers, net.norms, strict=True):
        round_layer(layer, norm)
    yield Compared(said(False), said(True), within=1e-3, apart=share)


def block(kind: type[DFlash], width: str, some: bool | None = None) -> Iterator[Compared]:
    """Round after round, once without a context. The heads are grouped, and there are biases, a factor and a vocabulary of its own.

    Keys and values have two norms before them, one for the context and one for the block, so those differ by a factor in the end.
    """
    net = block_net(kind, width, some)
    reads = net.config.feature_size

    def said(packed: bool) -> torch.Tensor:
        net.compiled = None
        if packed:
            assert net.pack_compiled_on_cpu().compiled
        pair, found, draw = replace(tiny_pair(), learned={kind.kind: net}), [], torch.Generator().manual_seed(4)
        for length in (0, 30):
            drafter = DRAFTERS[kind.kind](pair, 64)
            drafter.begin([1] * length + [0], torch.randn(length, 4, reads, generator=draw))
            for number in range(4):
                tree = DraftTree.from_root_token(11 * number)
                for token in (3, 4):
                    tree.add(len(tree) - 1, token, 0.5, 0.5)
                if number != 1:
                    found.append(drafter.log_q(tree, [0, 1, 2]))
                    found += [drafter.levels] if drafter.levels.shape[1] == 256 else []
                drafter.commit(tree, [1, 2][: number % 3], 11 * number + 11, torch.randn(3, 4, reads, generator=draw))
            assert drafter.cache.rows + len(drafter.features) == length + 7
        return torch.cat(found).exp()

    yield Compared(said(False), said(True), **ROUNDING, apart=share)
    on_grid(net.fc.weight)
    on_grid(net.head, net.norm.weight)
    if isinstance(net, DSpark):
        on_grid(net.markov_head["markov_w2"].weight)
    for layer in net.layers:
        attention, mlp = layer.self_attn, layer.mlp
        layer.input_layernorm.weight.copy_(2 * net.hidden_norm.weight)
        for name in "qkv":
            on_grid(attention[f"{name}_proj"].weight, net.hidden_norm.weight)
        for linear in (mlp.gate_proj, mlp.up_proj):
            on_grid(linear.weight, layer.post_attention_layernorm.weight)
        for linear in (attention.o_proj, mlp.down_proj):
            on_grid(linear.weight)
    yield Compared(said(False), said(True), within=1e-3, apart=share)


def specblock(width: str) -> Iterator[Compared]:
    """Blocks from the text, blocks that go on and branches."""
    net = copy.deepcopy(specblock_net(tiny_llama(0), width=width).requires_grad_(False))
    hidden = net.config.hidden

    def said(packed: bool) -> torch.Tensor:
        net.compiled = None
        if packed:
            net.pack_compiled_on_cpu()
        drafter, found = SpecBlockDrafter(pair := replace(tiny_pair(), learned={"specblock": net}), 140), []
        for number, (_, tree) in enumerate(specblock_rounds(pair, drafter, [40])):
            if number != 1:
                for nodes in ([0], [1, 2], [3, 4], [5], [6], [7], [8, 9]):
                    found.append(drafter.log_q(tree, nodes).exp())
        return torch.cat(found)

    yield Compared(said(False), said(True), **ROUNDING, apart=share)
    on_grid(net.cond_proj.weight)
    on_grid(net.fuse.weight[:, :hidden], net.norm_condition.weight)
    on_grid(net.unembed, net.norm_out.weight)
    same = torch.eye(hidden, 2 * hidden)
    for shift, layer, norm in zip(net.shifts, net.layers, net.norms, strict=True):
        on_grid(shift.weight.sub_(same))
        shift.weight.add_(same)
        round_layer(layer, norm)
    yield Compared(said(False), said(True), within=1e-3, apart=share)


def round_layer(layer, norm) -> None:
    on_grid(layer.qkv.weight, norm.weight)
    on_grid(layer.gate_up.weight, layer.norm.weight)
    for matrix in (layer.out.weight, layer.down.weight):
        on_grid(matrix)


def llama(name: str) -> Iterator[Compared]:
    model = random_model(name)
    runner = Runner(model, eight_bit=True)
    assert isinstance(runner.own, EightBitLlama)
    yield Compared(expected_of(name), answers(runner), **ROUNDING, apart=spread)
    with torch.no_grad():
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
                on_grid(linear.weight, layer.input_layernorm.weight)
            for linear in (mlp.gate_proj, mlp.up_proj):
                on_grid(linear.weight, layer.post_attention_layernorm.weight)
            for linear in (attention.o_proj, mlp.down_proj):
                on_grid(linear.weight)
        tied = model.lm_head.weight is model.model.embed_tokens.weight
        on_grid(model.lm_head.weight, model.model.norm.weight)
    assert tied == (name == "qwen2")
    yield Compared(answers(unlightened(model)), answers(Runner(model, eight_bit=True)), within=3e-4, apart=spread)


def in_all_widths(case: Callable[[str], Iterator[Compared]], variant: str = "") -> dict[str, Case]:
    """The cases by variant, which the width is part of."""
    return {" ".join(filter(None, (variant, width))): partial(case, width) for width in WIDTHS}


CASES: Cases = {
    "nets.dflash_compiled": {
        name: each for kind in (DFlash, DSpark) for name, each in in_all_widths(partial(block, kind), kind.kind).items()
    }
    | in_all_widths(partial(block, DSpark, some=True), "dspark, some tokens"),
    "nets.eagle_compiled": in_all_widths(eagle),
    "nets.medusa_compiled": in_all_widths(medusa) | {"some tokens": partial(sharing_medusa, "")},
    "nets.parallel_compiled": in_all_widths(parallel),
    "nets.specblock_compiled": in_all_widths(specblock),
    "forward.llama_eight_bit": {name: partial(llama, name) for name in MODELS if "biases" not in name},
}
