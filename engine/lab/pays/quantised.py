"""`python -m engine doctor --quantisation 8-bit --prompts FILE`: what fewer bits change of a target. Knows logits; knows no drafter.

The target reads the prompts twice, in the quantisation and without one. At each token its two laws are compared: by the divergence of
Kullback and Leibler, and by whether the likeliest token stays.
"""

from argparse import Namespace
from copy import copy

import torch
from torch import Tensor

from engine.measure.options import load_pair_of_options, pair_of_options
from engine.measure.prompts import read_prompt_files
from engine.models.chat import tokenise_prompt
from engine.models.pairs import LoadedPair

PIECE = 256  # tokens of a text that are read in one go, behind nothing


def tokenise_into_pieces(pair: LoadedPair, texts: list[str]) -> list[list[int]]:
    """The texts' tokens in pieces of at least two. Raises `ValueError` for texts without any."""
    tokens, size = [tokenise_prompt(pair, text) for text in texts], min(PIECE, pair.context - 1)
    pieces = [each[at : at + size] for each in tokens for at in range(0, len(each), size)]
    if not (whole := [piece for piece in pieces if len(piece) > 1]):
        raise ValueError("The prompts hold no two tokens in a row. Give --prompts a file of longer texts.")
    return whole


def compute_log_probabilities(pair: LoadedPair, piece: list[int]) -> Tensor:
    """The target's log-probabilities float32 `[n - 1, V]` behind each token of the piece but the last."""
    logits = pair.target.open_session(len(piece)).forward(piece, list(range(len(piece))))[0]
    return logits[:-1].float().log_softmax(-1).cpu()


def compare_kl_favourites_and_losses(
    plain: LoadedPair, quantised: LoadedPair, token_pieces: list[list[int]]
) -> dict[str, float]:
    """KL(plain | kept) in nats, the share of likeliest tokens that change, and both losses in nats: means over all tokens."""
    tokens, totals = sum(len(piece) - 1 for piece in token_pieces), torch.zeros(4, dtype=torch.double)
    for piece in token_pieces:
        p, q = (compute_log_probabilities(pair, piece) for pair in (plain, quantised))
        changed, following = p.argmax(-1) != q.argmax(-1), torch.tensor(piece[1:])[:, None]
        sums = (p.exp() * (p - q)).sum(), changed.sum(), -p.gather(1, following).sum(), -q.gather(1, following).sum()
        totals += torch.stack([each.double() for each in sums])
    kl, share, loss, kept_loss = (totals / tokens).tolist()
    return {"tokens": tokens, "kl": kl, "changed": share, "loss": loss, "kept_loss": kept_loss}


def main(options: Namespace) -> dict:
    prompts, pair, plainly = read_prompt_files(options.prompts), pair_of_options(options), copy(options)
    plainly.quantisation = "none"
    kept, plain = load_pair_of_options(options, pair), load_pair_of_options(plainly, pair)
    found = compare_kl_favourites_and_losses(
        plain, kept, tokenise_into_pieces(kept, [prompt.text for prompt in prompts])
    )
    print(
        f"{kept.dtype} changes {found['changed']:.1%} of the target's favourites: KL {found['kl']:.4f} nats, "
        f"loss {found['loss']:.4f} -> {found['kept_loss']:.4f} nats, over {found['tokens']:,} tokens."
    )
    return found | {"pair": kept.title, "dtype": kept.dtype}
