"""Followed: a learned drafter's favourites along texts that the target wrote, behind right paths. Knows features; knows no cause."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.drafters import DRAFTERS
from engine.forward.layer_ops import normalise_features
from engine.forward.session import default_feature_layers
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
class TargetWrittenText:
    """A text `ids`, the target's own from place `continuation_start` on, and the kind that it is counted in.

    `hidden [N, hidden_layers + 1, H]` are the outputs of these layers of the target, and at the end what its head reads.
    """

    ids: list[int]
    continuation_start: int
    group: str
    hidden_layers: tuple[int, ...]
    hidden: torch.Tensor


@dataclass(frozen=True)
class DrafterInputChange:
    """Changes to what the drafter reads in an experiment: other target layers, features of other positions, a shorter context.

    `target_layers` replace the target's layers that it reads. Features come from `feature_lag` places earlier, or with
    `reverses_features` in reverse order. With a `context_window` it sees that many tokens before a root, where there are more, and
    counts positions from there.
    """

    target_layers: tuple[int, ...] = ()
    feature_lag: int = 0
    reverses_features: bool = False
    context_window: int = 0


@dataclass(frozen=True, eq=False)
class TopGuessesByRound:
    """Rounds along texts: `top_guesses [R, DEPTH]` of the drafter, -1 for no guess, and the text's own `text_tokens [R, DEPTH +
    2]`.

    Column d + 1 of the tokens is what stood at depth d, and column 0 is the root. `context_lengths [R]` are the tokens up to the
    root, and `text_numbers [R]` number the texts.
    """

    top_guesses: np.ndarray
    text_tokens: np.ndarray
    context_lengths: np.ndarray
    text_numbers: np.ndarray

    def match_guesses_with_text(
        self, depth_offset: int = 0, map_token_ids: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> np.ndarray:
        """bool `[R, DEPTH]`: whether a favourite, `map_token_ids`, is the token at its depth, or the one later (1) or earlier (-1)."""
        guessed = self.top_guesses
        if map_token_ids is not None:
            guessed = np.where(guessed < 0, -1, map_token_ids(np.maximum(guessed, 0)))
        return guessed == self.text_tokens[:, 1 + depth_offset : 1 + depth_offset + DEPTH]


def count_tokens_by_round(is_guess_right: np.ndarray) -> np.ndarray:
    """Tokens of each round, float `[R]`: favourites that are right in a row, and the target's own token."""
    return 1.0 + is_guess_right.cumprod(1).sum(1)


def write_texts_with_hidden_states(
    pair: LoadedPair, prompts: list[Prompt], trained_context_length: int, hidden_layers: tuple[int, ...]
) -> list[TargetWrittenText]:
    """Texts that the target writes greedily: behind prompts, behind longer contexts of the same prompts, and behind nothing.

    `trained_context_length` is the context that the drafter was trained for, 0 where nobody says. The outputs of `hidden_layers`,
    in ascending order, stay.
    """
    chosen = prompts[:: max(1, len(prompts) // PROMPTS)][:PROMPTS]
    texts = [prompt.text for prompt in chosen]
    begun = [(encode_prompt(pair, prompt.text), prompt.group or "prompts") for prompt in chosen]
    for length in choose_context_lengths(pair, trained_context_length):
        for index, prompt in enumerate(chosen[:LONG]):
            begun.append((prepend_earlier_prompts_to_length(pair, texts, index, length), prompt.group or "prompts"))
    first = begun[0][0][:1]
    for seed in range(1, FREE + 1):
        begun.append((first + decode_plainly(pair, first, OPENING, Sampling(1.0, seed=seed)), FREELY))
    found = [continue_greedily_with_hidden_states(pair, ids, group, hidden_layers) for ids, group in begun]
    return [text for text in found if len(text.ids) - text.continuation_start > DEPTH + 1]


def prepend_earlier_prompts_to_length(pair: LoadedPair, prompts: list[str], index: int, token_count: int) -> list[int]:
    """The prompt's tokens behind those of the prompts before it in the file, `token_count` in all: a longer prompt loses its beginning.

    A token that begins texts stays first. Raises `ValueError` when no prompt has a token.
    """
    found = [encode_prompt(pair, prompt) for prompt in prompts]
    start = found[index][:1] if found[index][0] == pair.tokenizer.bos_token_id else []
    parts = [tokens[len(start) :] for tokens in found]
    if not any(parts):
        raise ValueError("The prompts have no tokens to make a context of.")
    tokens: list[int] = []
    while len(tokens) < token_count - len(start):
        tokens = parts[index % len(parts)] + tokens
        index -= 1
    return start + tokens[len(tokens) - token_count + len(start) :]


def choose_context_lengths(pair: LoadedPair, trained_context_length: int) -> list[int]:
    """Lengths of context to try, as far as they fit: the usual ones or those up to the trained one, and one a quarter beyond it."""
    lengths = [length for length in LENGTHS if length <= max(trained_context_length, USUAL)]
    if trained_context_length:
        lengths.append(trained_context_length + trained_context_length // 4)
    return sorted({length for length in lengths if length + TOKENS < pair.context})


def continue_greedily_with_hidden_states(
    pair: LoadedPair, prompt_ids: list[int], group: str, hidden_layers: tuple[int, ...]
) -> TargetWrittenText:
    """The text that plain decoding writes greedily behind `prompt_ids`, as the target sees it."""
    text = prompt_ids + decode_plainly(pair, prompt_ids, TOKENS, Sampling())
    hidden = pair.target.open_session(len(text), hidden_layers).prefill(text)[1]
    assert hidden is not None  # the session was asked for them
    return TargetWrittenText(text, len(prompt_ids), group, hidden_layers, hidden)


def layers_read_by_net(net: Net, target_layer_count: int) -> tuple[int, ...]:
    """The layers that the net reads, of a target with so many, each by how many layers are behind it."""
    reads = getattr(net, "reads_features", True)
    return reads if isinstance(reads, tuple) else default_feature_layers(target_layer_count)


def changed_features_for_net(
    net: Net, text: TargetWrittenText, target_layers: tuple[int, ...], input_change: DrafterInputChange
) -> torch.Tensor:
    """The features `[N, target_layers + 1, H]` of all of the text's tokens as the net reads them of these layers."""
    features = text.hidden[:, [text.hidden_layers.index(layer) for layer in target_layers] + [-1]]
    if not isinstance(getattr(net, "reads_features", True), tuple):
        features = normalise_features(features)
    if input_change.reverses_features:
        features = features.flip(0)
    places = (torch.arange(len(features), device=features.device) - input_change.feature_lag).clamp(
        0, len(features) - 1
    )
    return features[places]


@torch.inference_mode()
def record_top_guesses_along_texts(
    pair: LoadedPair, net: Net, texts: list[TargetWrittenText], input_change: DrafterInputChange = DrafterInputChange()
) -> TopGuessesByRound:
    """The net's favourites along the texts, shown by the view."""
    alone, rows = replace(pair, learned={net.config.kind: net}), []
    layers = input_change.target_layers or layers_read_by_net(net, pair.target.config.num_hidden_layers)
    for number, text in enumerate(texts):
        drafter = DRAFTERS[net.config.kind](alone, len(text.ids) + LARGEST_TREE)
        features, start = changed_features_for_net(net, text, layers, input_change), text.continuation_start - 1
        for root in range(start, len(text.ids) - DEPTH - 1, STRIDE):
            first = max(0, root + 1 - input_change.context_window) if input_change.context_window else 0
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
    return TopGuessesByRound(*(np.array(column) for column in zip(*rows, strict=True)))
