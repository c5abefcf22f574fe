"""Followed: a learned drafter's favourites along texts that the target wrote, behind right paths. Knows features; knows no cause."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.drafters import DRAFTERS
from engine.forward.layer_ops import normalise_features
from engine.forward.session import tapped_layers
from engine.measure.prompts import Prompt
from engine.measure.ways import decode_plainly
from engine.models.pairs import LoadedPair
from engine.nets import Net
from engine.race import encode_prompt
from engine.sampling import Sampling
from engine.tree import LARGEST_TREE, DraftTree

TOKENS = 64  # that the target writes behind each prompt
PROMPTS, LONG, FREE = 24, 4, 6  # texts: behind prompts, behind each length of context, and behind nothing
OPENING = 12  # tokens of the target's free writing that are drawn at temperature 1; the rest is greedy like all texts
DEPTH, STRIDE = 6, 3  # depths that are guessed at, and tokens from one round to the next
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)  # of contexts
USUAL = 1024  # longest context where nothing says that the drafter was trained for more
FREELY = "free writing"


@dataclass(frozen=True, eq=False)
class TargetText:
    """A text `ids`, the target's own from place `start` on, and the kind that it is counted in.

    `hidden [N, layers + 1, H]` are the outputs of these `layers` of the target, and at the end what its head reads.
    """

    ids: list[int]
    start: int
    group: str
    layers: tuple[int, ...]
    hidden: torch.Tensor


@dataclass(frozen=True)
class DraftingView:
    """Changes to what the drafter reads in an experiment: other target layers, features of other positions, a shorter context.

    `layers` replace the target's layers that it reads. Features come from `lag` places earlier, or with `mixed` in reverse order. With
    a `window` it sees that many tokens before a root, where there are more, and counts positions from there.
    """

    layers: tuple[int, ...] = ()
    lag: int = 0
    mixed: bool = False
    window: int = 0


@dataclass(frozen=True, eq=False)
class FavouriteRounds:
    """Rounds along texts: `favourites [R, DEPTH]` of the drafter, -1 for no guess, and the text's own `tokens [R, DEPTH + 2]`.

    Column d + 1 of the tokens is what stood at depth d, and column 0 is the root. `contexts [R]` are the tokens up to the root, and
    `texts [R]` number the texts.
    """

    favourites: np.ndarray
    tokens: np.ndarray
    contexts: np.ndarray
    texts: np.ndarray

    def match_favourites(
        self, depth_offset: int = 0, renamed: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> np.ndarray:
        """bool `[R, DEPTH]`: whether a favourite, `renamed`, is the token at its depth, or the one later (1) or earlier (-1)."""
        guessed = self.favourites
        if renamed is not None:
            guessed = np.where(guessed < 0, -1, renamed(np.maximum(guessed, 0)))
        return guessed == self.tokens[:, 1 + depth_offset : 1 + depth_offset + DEPTH]


def count_tokens_by_round(hits: np.ndarray) -> np.ndarray:
    """Tokens of each round, float `[R]`: favourites that are right in a row, and the target's own token."""
    return 1.0 + hits.cumprod(1).sum(1)


def write_target_texts(
    pair: LoadedPair, prompts: list[Prompt], trained_length: int, layers: tuple[int, ...]
) -> list[TargetText]:
    """Texts that the target writes greedily: behind prompts, behind longer contexts of the same prompts, and behind nothing.

    `trained_length` is the context that the drafter was trained for, 0 where nobody says. The outputs of `layers`, in ascending order,
    stay.
    """
    chosen = prompts[:: max(1, len(prompts) // PROMPTS)][:PROMPTS]
    texts = [prompt.text for prompt in chosen]
    begun = [(encode_prompt(pair, prompt.text), prompt.group or "prompts") for prompt in chosen]
    for length in choose_context_lengths(pair, trained_length):
        for index, prompt in enumerate(chosen[:LONG]):
            begun.append((lengthen_prompt(pair, texts, index, length), prompt.group or "prompts"))
    first = begun[0][0][:1]
    for seed in range(1, FREE + 1):
        begun.append((first + decode_plainly(pair, first, OPENING, Sampling(1.0, seed=seed)), FREELY))
    found = [write_target_text(pair, ids, group, layers) for ids, group in begun]
    return [text for text in found if len(text.ids) - text.start > DEPTH + 1]


def lengthen_prompt(pair: LoadedPair, prompts: list[str], index: int, length: int) -> list[int]:
    """The prompt's tokens behind those of the prompts before it in the file, `length` in all: a longer prompt loses its beginning.

    A token that begins texts stays first. Raises `ValueError` when no prompt has a token.
    """
    found = [encode_prompt(pair, prompt) for prompt in prompts]
    start = found[index][:1] if found[index][0] == pair.tokenizer.bos_token_id else []
    parts = [tokens[len(start) :] for tokens in found]
    if not any(parts):
        raise ValueError("The prompts have no tokens to make a context of.")
    tokens: list[int] = []
    while len(tokens) < length - len(start):
        tokens = parts[index % len(parts)] + tokens
        index -= 1
    return start + tokens[len(tokens) - length + len(start) :]


def choose_context_lengths(pair: LoadedPair, trained_length: int) -> list[int]:
    """Lengths of context to try, as far as they fit: the usual ones or those up to the trained one, and one a quarter beyond it."""
    lengths = [length for length in LENGTHS if length <= max(trained_length, USUAL)]
    if trained_length:
        lengths.append(trained_length + trained_length // 4)
    return sorted({length for length in lengths if length + TOKENS < pair.context})


def write_target_text(pair: LoadedPair, ids: list[int], group: str, layers: tuple[int, ...]) -> TargetText:
    """The text that plain decoding writes greedily behind `ids`, as the target sees it."""
    text = ids + decode_plainly(pair, ids, TOKENS, Sampling())
    hidden = pair.target.open_session(len(text), layers).prefill(text)[1]
    assert hidden is not None  # the session was asked for them
    return TargetText(text, len(ids), group, layers, hidden)


def layers_read_by_net(net: Net, layers: int) -> tuple[int, ...]:
    """The layers that the net reads, of a target with so many, each by how many layers are behind it."""
    reads = getattr(net, "reads", True)
    return reads if isinstance(reads, tuple) else tapped_layers(layers)


def features_for(net: Net, text: TargetText, layers: tuple[int, ...], view: DraftingView) -> torch.Tensor:
    """The features `[N, layers + 1, H]` of all of the text's tokens as the net reads them of these layers."""
    features = text.hidden[:, [text.layers.index(layer) for layer in layers] + [-1]]
    if not isinstance(getattr(net, "reads", True), tuple):
        features = normalise_features(features)
    if view.mixed:
        features = features.flip(0)
    places = (torch.arange(len(features), device=features.device) - view.lag).clamp(0, len(features) - 1)
    return features[places]


@torch.inference_mode()
def record_favourites_along_texts(
    pair: LoadedPair, net: Net, texts: list[TargetText], view: DraftingView = DraftingView()
) -> FavouriteRounds:
    """The net's favourites along the texts, shown by the view."""
    alone, rows = replace(pair, learned={net.config.kind: net}), []
    layers = view.layers or layers_read_by_net(net, pair.target.config.num_hidden_layers)
    for number, text in enumerate(texts):
        drafter = DRAFTERS[net.config.kind](alone, len(text.ids) + LARGEST_TREE)
        features, start = features_for(net, text, layers, view), text.start - 1
        for root in range(start, len(text.ids) - DEPTH - 1, STRIDE):
            first = max(0, root + 1 - view.window) if view.window else 0
            if first or root == start:
                drafter.begin(text.ids[first : root + 1], features[first:root])
            tree, favourites = DraftTree.from_root_token(text.ids[root]), []
            for level in range(DEPTH):
                log_q = drafter.log_q(tree, [level])
                favourites.append(-1 if log_q is None else int(log_q[0].argmax()))
                tree.add(level, text.ids[root + 1 + level], 1.0, 1.0)
            rows.append((favourites, text.ids[root : root + DEPTH + 2], root + 1, number))
            behind = features[root : root + len(tree)]
            drafter.commit(tree, list(range(1, STRIDE)), text.ids[root + STRIDE], behind)
    return FavouriteRounds(*(np.array(column) for column in zip(*rows, strict=True)))
