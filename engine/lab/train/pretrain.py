"""The embedded target: a small Llama trained on the mixed corpus, from scratch or from a smaller one that grows.

Rows are short for most of the run. For the last 15 % they are 1,024 tokens long, which gives the context window its full length.
"""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from engine.lab.train.data import DOMAINS, TokenCorpus
from engine.lab.train.loop import TrainingBudget, train_or_resume_within_budget
from engine.models.loading import load_model
from engine.models.pairs import Checkpoint
from engine.sampling import build_generator_from_key

SIZES = {  # hidden, layers, heads, MLP
    "11M": (320, 8, 5, 896),
    "16M": (384, 8, 6, 1024),
    "28M": (512, 8, 8, 1408),
    "67M": (640, 8, 10, 3328),
}
LONG_SHARE = 0.15
SAVED_EVERY = {"cpu": 300.0, "cuda": 45.0}  # seconds
SHORT_ROW, LONG_ROW = 256, 1024
UNEVEN = 0.5  # spread of the shares in which a weight is shared out, beside their mean


def build_untrained_llama(hidden: int, layers: int, heads: int, mlp: int, vocab_size: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
            intermediate_size=mlp, vocab_size=vocab_size,
            max_position_embeddings=LONG_ROW, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def split_weight_among_input_copies(weight: torch.Tensor, copies: int, generator: torch.Generator) -> torch.Tensor:
    """A weight `[out, copies * in]` that computes on an input repeated `copies` times what `weight [out, in]` computes on it."""
    shares = torch.full((copies, *weight.shape), 1 / copies)
    shares += UNEVEN * torch.empty_like(shares).normal_(generator=generator) / copies
    shares += (1 - shares.sum(0)) / copies
    return (shares * weight).permute(1, 0, 2).reshape(weight.shape[0], -1)


def copy_weights_preserving_function(
    small: LlamaForCausalLM, large: LlamaForCausalLM, layer_map: Sequence[int] | None = None
) -> None:
    """Write into `large` what computes the same as `small`: in float32 their logits differ by rounding only.

    Every hidden number stands several times, and so does every head. A weight is shared out among the copies of its input at random, so
    that no two copies learn alike (Net2Net, arXiv 1511.05641; bert2BERT, 2110.07143). `layer_map` say which layer of `large` each of
    `small` becomes, the first ones when left out. Further layers add nothing.
    Raises `ValueError` unless `large` has as many head numbers and tokens as `small`, a hidden size that is a multiple, and at least as
    many layers and as wide an MLP.
    """
    few, many = small.config, large.config
    copies, rest = divmod(many.hidden_size, few.hidden_size)
    alike = all(getattr(few, name) == getattr(many, name) for name in ("head_dim", "vocab_size", "tie_word_embeddings"))
    less = any(getattr(many, name) < getattr(few, name) for name in ("num_hidden_layers", "intermediate_size"))
    if rest or less or not alike or not few.tie_word_embeddings:
        raise ValueError(
            f"Hidden size {few.hidden_size}, {few.num_hidden_layers} layers and MLP {few.intermediate_size} can not grow to "
            f"{many.hidden_size}, {many.num_hidden_layers} layers and MLP {many.intermediate_size}. A multiple of the hidden "
            "size, at least as many layers and an MLP at least as wide would do."
        )
    draws = build_generator_from_key("shares of grown weights")

    def split_weight(weight: torch.Tensor) -> torch.Tensor:
        return split_weight_among_input_copies(weight, copies, draws)

    # Which neuron of the small MLP each neuron of the large one copies, and how many copies it has
    source = torch.arange(many.intermediate_size) % few.intermediate_size
    numbers = torch.bincount(source, minlength=few.intermediate_size)
    with torch.no_grad():
        large.model.embed_tokens.weight.copy_(small.model.embed_tokens.weight.repeat(1, copies))
        # The tied head adds up all copies
        large.model.norm.weight.copy_(small.model.norm.weight.repeat(copies) / copies)
        for new in large.model.layers:
            new.self_attn.o_proj.weight.zero_()
            new.mlp.down_proj.weight.zero_()
        for old, place in zip(small.model.layers, layer_map or range(few.num_hidden_layers), strict=True):
            new = large.model.layers[place]
            for name in ("input_layernorm", "post_attention_layernorm"):
                getattr(new, name).weight.copy_(getattr(old, name).weight.repeat(copies))
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                wider = split_weight(getattr(old.self_attn, name).weight).repeat(copies, 1)
                getattr(new.self_attn, name).weight.copy_(wider)
            for name in ("gate_proj", "up_proj"):
                getattr(new.mlp, name).weight.copy_(split_weight(getattr(old.mlp, name).weight)[source])
            down = old.mlp.down_proj.weight[:, source] / numbers[source]
            new.mlp.down_proj.weight.copy_(down.repeat(copies, 1))


@torch.inference_mode()
def validation_loss_by_domain(
    model: LlamaForCausalLM, held_out: TokenCorpus, row_length: int = SHORT_ROW, row_count: int = 24
) -> dict[str, float]:
    """Mean cross-entropy in nats a token on fixed held-out rows, by domain."""
    model.eval()
    losses = {}
    for domain in DOMAINS:
        ids = (
            torch.from_numpy(
                held_out.draw_rows_from_document_starts(domain, row_length, row_count, np.random.default_rng(0))
            )
            .long()
            .to(model.device)
        )
        losses[domain] = float(model(input_ids=ids, labels=ids, use_cache=False).loss)
    return losses


def pretrain_target(
    corpus: TokenCorpus, held_out: TokenCorpus, work_folder: Path, options: Namespace, vocab_size: int
) -> LlamaForCausalLM:
    """A trained target, from random weights or from the smaller target in the folder `options.start`, which grows.

    Progress and checkpoints are as in `loop.train_or_resume_within_budget`. With `options.compile` steps are faster and need a C++
    compiler.
    `options.dropout` is the share of numbers that is left out of what a layer adds to the stream.
    """
    torch.manual_seed(0)
    model = build_untrained_llama(*SIZES[options.size], vocab_size).to(options.device)
    if options.start:
        copy_weights_preserving_function(
            load_model(Checkpoint(str(options.start)), torch.device("cpu"), torch.float32), model
        )
    for layer in model.model.layers if options.dropout else ():
        for part in (layer.self_attn.o_proj, layer.mlp):
            part.register_forward_hook(lambda part, _, out: F.dropout(out, options.dropout, part.training))
    learner = torch.compile(model, dynamic=False) if options.compile else model

    def compute_loss_and_token_count(step: int, share: float) -> tuple[torch.Tensor, int]:
        length = LONG_ROW if share >= 1.0 - LONG_SHARE else SHORT_ROW
        rows = max(1, options.batch_tokens // length)
        ids = corpus.draw_rows_of_mixed_domains(rows, length, np.random.default_rng([1, step])).to(options.device)
        return learner(input_ids=ids, labels=ids, use_cache=False).loss, ids.numel()

    budget, every = TrainingBudget(options.minutes, options.tokens), SAVED_EVERY[torch.device(options.device).type]
    figures = partial(validation_loss_by_domain, model, held_out)
    train_or_resume_within_budget(
        "target",
        model,
        compute_loss_and_token_count,
        figures,
        work_folder,
        budget,
        options.rate,
        every,
        options.bf16,
        options.decay,
    )
    return model
