"""The embedded target: a small Llama trained on the mixed corpus, from scratch or from a smaller one that grows.

Rows are short for most of the run. For the last 15 % they are 1,024 tokens long, which gives the context window its full length.
"""

from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.lab.train.data import DOMAINS, Corpus
from engine.lab.train.loop import Budget, train
from engine.models.growing import UNEVEN, grow
from engine.models.loading import load_model
from engine.models.pairs import Checkpoint

SIZES = {  # hidden, layers, heads, MLP
    "11M": (320, 8, 5, 896),
    "16M": (384, 8, 6, 1024),
    "28M": (512, 8, 8, 1408),
    "60M": (640, 8, 10, 3072),
}
LONG_SHARE = 0.15
SAVED_EVERY = {"cpu": 300.0, "cuda": 45.0}  # seconds
SHORT_ROW, LONG_ROW = 256, 1024


def llama(hidden: int, layers: int, heads: int, mlp: int, vocab_size: int) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            intermediate_size=mlp,
            max_position_embeddings=LONG_ROW,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )


@torch.inference_mode()
def validation_loss(
    model: LlamaForCausalLM, held_out: Corpus, length: int = SHORT_ROW, rows: int = 24
) -> dict[str, float]:
    """Mean cross-entropy in nats a token on fixed held-out rows, by domain."""
    model.eval()
    losses = {}
    for domain in DOMAINS:
        ids = torch.from_numpy(held_out.rows(domain, length, rows, np.random.default_rng(0))).long().to(model.device)
        losses[domain] = float(model(input_ids=ids, labels=ids, use_cache=False).loss)
    return losses


def pretrain(corpus: Corpus, held_out: Corpus, work: Path, options: Namespace, vocab: int) -> LlamaForCausalLM:
    """A trained target, from random weights or from the smaller target in the folder `options.start`, which grows.

    Progress and checkpoints are as in `loop.train`. With `options.compile` steps take less time and a C++ compiler.
    """
    torch.manual_seed(0)
    model = llama(*SIZES[options.size], vocab).to(options.device)
    if options.start:
        grow(load_model(Checkpoint(str(options.start)), torch.device("cpu"), torch.float32), model, UNEVEN)
    learner = torch.compile(model, dynamic=False) if options.compile else model

    def loss_of(step: int, share: float) -> tuple[torch.Tensor, int]:
        length = LONG_ROW if share >= 1.0 - LONG_SHARE else SHORT_ROW
        rows = max(1, options.batch_tokens // length)
        ids = corpus.batch(rows, length, np.random.default_rng([1, step])).to(options.device)
        return learner(input_ids=ids, labels=ids, use_cache=False).loss, ids.numel()

    budget, every = Budget(options.minutes, options.tokens), SAVED_EVERY[torch.device(options.device).type]
    figures = partial(validation_loss, model, held_out)
    train("target", model, loss_of, figures, work, budget, options.rate, every, options.bf16)
    return model
