"""Cases of equality: ranking, trees grown in one call or on the device, and whole rounds on the device."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import torch

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.kernels.ranking_compiled import compiled_top_tokens_scores_q
from engine.nets.dflash import DFlash
from engine.nets.dspark import DSpark
from engine.policies.auto import CostAdaptiveTree
from engine.policies.best_first import BestFirst
from engine.policies.expand_rerank import ExpandRerank
from engine.policies.shared.ranking import top_tokens_scores_and_q
from engine.record.costs import Costs
from engine.sampling import Sampling
from engine.target import Target
from engine.tree import DraftTree
from helpers.decoding import lane_rounds, rounds_compared, trees_compared
from helpers.equality import Cases, Compared, largest_share
from helpers.families import WINDOWED, sharp_model
from helpers.learned import TEXT, block_net, pair_with
from helpers.pairs import PROMPT, tiny_llama, tiny_pair
from helpers.published.mtp import untrained

THERE = {  # systems whose rounds a device decides alone, and shapes
    "tree": (6, 3, 20),
    "medusa": (3, 3, 9),
    "parallel-tree": (6, 4, 12),
    "dflash": (7, 4, 12),
    "dspark": (7, 4, 12),
    "specblock": (4, 4, 12),
    "specblock:12x6x24": (12, 6, 24),
    "eagle": (5, 3, 12),
    "mtp": (4, 3, 9),
    "talon": (6, 3, 12),
    "eagle/kary/token_match": (3, 2, 15),
    "eagle/chain/token_match": (5, 1, 6),
    "mtp/beam/token_match": (3, 3, 9),
}
COSTS = Costs({1: 5.0, 2: 5.1, 8: 5.8, 16: 7.0, 32: 10.0}, first_ms=0.4, level_ms=0.2)
POLICIES = {
    "best_first": lambda: BestFirst(4, 3, 9, "ranked"),
    "expand_rerank": lambda: ExpandRerank(4, 3, 9, "ranked"),
    "auto": lambda: CostAdaptiveTree(6, 3, 12, "ranked", costs=COSTS),
}
STOPS = frozenset(range(0, 256, 3))
SAMPLINGS = {"greedy": Sampling(), "sampled": Sampling(0.8, seed=3)}


def shortlist(sampling: Sampling, width: int) -> Iterator[Compared]:
    log_q = (3 * torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))).log_softmax(-1)
    log_q[:, 7:300] = -torch.inf
    noise = None if sampling.greedy else sampling.noise.row(17, 1000)
    silence, temperature = np.zeros(0, np.float32), np.float32(sampling.temperature or 1)
    found = compiled_top_tokens_scores_q(log_q.numpy(), silence if noise is None else noise.numpy(), temperature, width)
    tokens, scores, q = top_tokens_scores_and_q(sampling.scale_and_filter_logits(log_q), noise, width)
    yield Compared(tokens.tolist(), found[0].tolist())
    yield Compared(scores, found[1], within=1e-6)
    yield Compared(q, found[2], within=1e-5)


@cache
def compiled_pair():
    """A random pair whose draft, EAGLE and DSpark are compiled. DSpark reads the fifth layer of its target."""
    made = pair_with("eagle")
    made.net("eagle").pack_compiled_on_cpu()
    made.learned["dspark"] = block_net(DSpark).pack_compiled_on_cpu()
    return replace(made, target=Runner(tiny_llama(0, layers=8)), draft=Runner(tiny_llama(1, layers=2), eight_bit=True))


def grown(
    name: str, policy, sampling: Sampling, stop_ids: frozenset[int], at_once: bool
) -> list[tuple[DraftTree, int]]:
    """The trees of a few rounds along TEXT, with accepted paths of several lengths, and the number of draft forwards of each."""
    pair = compiled_pair()
    drafter = DRAFTERS[name](pair, 90)
    target = Target(pair.target, 90, features=drafter.reads_features)
    assert drafter.compiled_tree_grower
    drafter.stop_ids = stop_ids
    drafter.growing_loops, root, found = drafter.growing_loops if at_once else None, 2, []
    drafter.begin(TEXT[:3], target.prefill_and_return_features(TEXT[:2]))
    for accepted in (0, 2, 1, 3, 0, 2):
        before = drafter.draft_forward_count
        tree = policy.grow(drafter, TEXT[root], target.committed_rows, sampling, 9)
        found.append((tree, drafter.draft_forward_count - before))
        _, features = target.verify(tree)
        deepest = max(range(len(tree)), key=lambda node: tree.depth[node])
        path = tree.path_below_root(deepest)[:accepted]
        target.commit(path)
        root += 1
        policy.learn_from_accepted_path(tree, path)
        drafter.commit(tree, path, TEXT[root], features)
    return found


def growing(name: str, policy: str, sampling: Sampling, stop_ids: frozenset[int] = frozenset()) -> Iterator[Compared]:
    """One call grows the same tree as asking once a level."""
    asked, at_once = (grown(name, POLICIES[policy](), sampling, stop_ids, flag) for flag in (False, True))
    assert len(asked) == len(at_once) and all(forwards >= 1 for _, forwards in asked)
    for (tree, forwards), (fast, fast_forwards) in zip(asked, at_once, strict=True):
        for field in ("tokens", "parents", "depth", "creation_indices"):
            yield Compared(getattr(tree, field), getattr(fast, field))
        for field in ("score", "q"):
            yield Compared(getattr(tree, field), getattr(fast, field), within=1e-3, apart=largest_share)
        yield Compared(forwards, fast_forwards)
        assert not any(above and fast.tokens[above] in stop_ids for above in fast.parents[1:])
    assert max(len(tree) for tree, _ in at_once) > 4


def device_rounds(same: bool, prompt: list[int], temperature: float) -> Iterator[Compared]:
    """Tree, path, bonus, burst and logits, with a draft that is hardly ever right and with one that is always right."""
    pair, taus = tiny_pair(same=same), []
    for shape in ((4, 4, 8), (3, 2, 15), (1, 4, 3)):
        loop, device = lane_rounds(pair, "tree", prompt, 24, shape, temperature=temperature, seed=3)
        yield from rounds_compared(loop, device)
        taus.append(24 / len(device))
    assert not same or min(taus) > 1.5
    yield from rounds_compared(*lane_rounds(pair, "vanilla", prompt, 24, temperature=temperature, seed=3))


@cache
def pair_of_all():
    """A random pair with every drafter, as tensors. Its draft model is the target; DFlash reads the fifth of its layers."""
    made = pair_with("medusa", "eagle")
    target = Runner(tiny_llama(0, layers=6), use_custom_forward=False)
    nets = {"dflash": block_net(DFlash), "dspark": block_net(DSpark), "mtp": untrained(target.model)}
    return replace(made, target=target, draft=target, learned=made.learned | nets)


@cache
def windowed_pair(family: str):
    """A random pair whose target has a sliding window and drafts for itself. Learned drafters read it."""
    target = Runner(sharp_model(family), use_custom_forward=False)
    return replace(pair_with("eagle"), target=target, draft=target)


def windowed_rounds(family: str, name: str, temperature: float) -> Iterator[Compared]:
    """Behind a prompt of many windows, in trees that are deeper than one."""
    prompt, tokens = [7 * place % 256 for place in range(40)], 20
    rounds = lane_rounds(windowed_pair(family), name, prompt, tokens, THERE[name], temperature=temperature, seed=3)
    yield from rounds_compared(*rounds)
    assert name != "tree" or tokens > 4 * len(rounds[1])


def device_trees(name: str, temperature: float) -> Iterator[Compared]:
    """Trees of every drafter and policy, in shapes of their own, behind a prompt and a single token.

    One of them has stop tokens, which the loop writes past here: at temperature 0 the prompt, else the single token.
    """
    prompts = (PROMPT, PROMPT) if name.startswith("mtp") else (PROMPT, [7])  # its first rows see nothing
    for prompt, stop_ids in zip(
        prompts, (STOPS, frozenset()) if temperature == 0 else (frozenset(), STOPS), strict=True
    ):
        pair = replace(pair_of_all(), stop_ids=stop_ids)
        rounds = lane_rounds(pair, name, prompt, 24, THERE[name], temperature=temperature, seed=5)
        for loop, device in zip(*rounds, strict=True):
            yield from trees_compared(loop.tree, device.tree)
            yield Compared(loop.burst, device.burst)
            assert not any(above and device.tree.tokens[above] in stop_ids for above in device.tree.parents[1:])


def grown_by(name: str, *policies: str) -> dict[str, Callable[[], Iterator[Compared]]]:
    cases = product((name,), policies, SAMPLINGS)
    return {
        f"{drafter}, {policy}, {how}": partial(growing, drafter, policy, SAMPLINGS[how])
        for drafter, policy, how in cases
    } | {
        f"{name}, {policy}, sampled, stop tokens": partial(growing, name, policy, SAMPLINGS["sampled"], STOPS)
        for policy in policies
    }


CASES: Cases = {
    "kernels.ranking_compiled": {
        f"{width} of T={sampling.temperature}": partial(shortlist, sampling, width)
        for sampling, width in product((Sampling(), Sampling(0.8, seed=3), Sampling(temperature=0.05)), (1, 4, 9))
    },
    "kernels.growing_compiled": grown_by("model", *POLICIES)
    | grown_by("eagle", *POLICIES)
    | grown_by("dspark", *POLICIES),
    "rounds.round_gpu": {
        f"{'sure' if same else 'unsure'} draft, {len(prompt)} tokens, T={temperature}": partial(
            device_rounds, same, prompt, temperature
        )
        for same, prompt, temperature in product((False, True), ([7], PROMPT), (0.0, 0.8))
    }
    | {
        f"{family}, {name}, T={temperature}": partial(windowed_rounds, family, name, temperature)
        for family, name, temperature in product(WINDOWED, ("tree", "eagle", "parallel-tree"), (0.0, 0.8))
    },
    "policies.shared.growing_gpu": {
        f"{name}, T={temperature}": partial(device_trees, name, temperature)
        for name, temperature in product(THERE, (0.0, 0.8))
    },
}
