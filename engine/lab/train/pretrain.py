"""The embedded target: a small Llama trained on the mixed corpus, from scratch or from a smaller one that grows.

Rows are short for most of the run. For the last 15 % they are 1,024 tokens long, which gives the context window its full length.
"""

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


def pretrain(
    corpus: Corpus,
    held_out: Corpus,
    work: Path,
    size: str,
    budget: Budget,
    vocab_size: int,
    device: str = "cpu",
    batch_tokens: int = 6144,
    lr: float = 4e-3,
    start: Path | None = None,
    bf16: bool = False,
    compiled: bool = False,
) -> LlamaForCausalLM:
    """A trained target, from random weights or from the smaller target in the folder `start`, which grows.

    Progress, checkpoints and `bf16` are as in `loop.train`. `compiled` steps take less time and a C++ compiler.
    Raises `KeyError` for an unknown size.
    """
    if size not in SIZES:
        raise KeyError(f"Unknown target size {size!r}. Available: {', '.join(SIZES)}.")
    torch.manual_seed(0)
    model = llama(*SIZES[size], vocab_size).to(device)
    if start:
        grow(load_model(Checkpoint(str(start)), torch.device("cpu"), torch.float32), model, UNEVEN)

    learner = torch.compile(model, dynamic=False) if compiled else model

    def loss_of(step: int, share: float) -> tuple[torch.Tensor, int]:
        length = LONG_ROW if share >= 1.0 - LONG_SHARE else SHORT_ROW
        ids = corpus.batch(max(1, batch_tokens // length), length, np.random.default_rng([1, step])).to(device)
        return learner(input_ids=ids, labels=ids, use_cache=False).loss, ids.numel()

    every = SAVED_EVERY[torch.device(device).type]
    train("target", model, loss_of, lambda: validation_loss(model, held_out), work, budget, lr, every, bf16)
    return model
