"""Cases of equality: nets in compiled loops and eight bits. They differ from their references only by rounding.

Where matrices are stored unrounded, almost no difference is left.
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
from helpers.equality import Case, Cases, Compared, share, spread, unrounded_drafter_matrices
from helpers.families import MODELS, answers, expected_of, random_model
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
    with unrounded_drafter_matrices():
        unrounded = said(CompiledEagle(net).open_session(16))
    yield Compared(said(EagleSession(net, 16)), unrounded, within=3e-4, apart=share)


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
    with unrounded_drafter_matrices():
        net.pack_compiled_on_cpu()
    for k in range(3):
        yield Compared(exact(k), net.log_q(final, k).exp(), within=3e-4, apart=share)


def parallel(width: str) -> Iterator[Compared]:
    """Round after round, from a first entry that has no token before it."""
    net = copy.deepcopy(parallel_net(tiny_llama(0), width))

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
    with unrounded_drafter_matrices():
        unrounded = said(True)
    yield Compared(said(False), unrounded, within=1e-3, apart=share)


def block(kind: type[DFlash], width: str, some: bool | None = None) -> Iterator[Compared]:
    """Round after round, once without a context. The heads are grouped, and there are biases, a factor and a vocabulary of its own."""
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
    with unrounded_drafter_matrices():
        unrounded = said(True)
    yield Compared(said(False), unrounded, within=1e-3, apart=share)


def specblock(width: str) -> Iterator[Compared]:
    """Blocks from the text, blocks that go on and branches."""
    net = copy.deepcopy(specblock_net(tiny_llama(0), width=width).requires_grad_(False))

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
    with unrounded_drafter_matrices():
        unrounded = said(True)
    yield Compared(said(False), unrounded, within=1e-3, apart=share)


def llama(name: str) -> Iterator[Compared]:
    model = random_model(name)
    runner = Runner(model, eight_bit=True)
    assert isinstance(runner.own, EightBitLlama)
    yield Compared(expected_of(name), answers(runner), **ROUNDING, apart=spread)
    with unrounded_drafter_matrices():
        unrounded = answers(Runner(model, eight_bit=True))
    yield Compared(expected_of(name), unrounded, within=3e-4, apart=spread)


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
