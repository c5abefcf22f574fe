"""The embedded draft: one Llama layer that learns the target's own probabilities, on real text and on text the target wrote.

What counts is tau, so the loss is the divergence from the target's distribution. Most rows are the target's own writing, greedy and
sampled, because a draft sees such text while it serves.
"""

from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig, LlamaForCausalLM

from engine.train.data import DOMAINS, Corpus
from engine.train.loop import Budget, train
from engine.train.pretrain import llama

DRAFT_SHAPE = (128, 1, 2, 384)  # hidden, layers, heads, MLP
ROW = 256
PROMPT = (4, 40)  # tokens of a document that the target goes on from
TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
OWN_SHARE = 0.65
LISTED = 48  # tokens of the target's distribution that are kept at every place


@torch.inference_mode()
def own_text(target: LlamaForCausalLM, corpus: Corpus, work: Path, rows: int, batch: int = 128) -> np.ndarray:
    """`[rows, ROW]` ids that the target wrote after short prompts of all domains. `work/own.npy` keeps them, for a run that resumes."""
    path = work / "own.npy"
    done = np.load(path) if path.exists() else np.zeros((0, ROW), dtype=np.int32)
    bar = tqdm(total=rows, initial=len(done), desc="own text", unit="row")
    kept = target.generation_config
    target.generation_config = GenerationConfig(max_length=ROW)  # without an end token: a new text follows the first
    while len(done) < rows:
        rng = np.random.default_rng([2, len(done)])
        torch.manual_seed(len(done))
        [domain] = corpus.draw(1, rng)
        length = int(rng.integers(*PROMPT))
        temperature = TEMPERATURES[rng.integers(len(TEMPERATURES))]
        prompts = torch.from_numpy(corpus.rows(domain, length, batch, rng)).long().to(target.device)
        written = target.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=temperature > 0,
            temperature=temperature or None,
            top_k=0 if temperature else None,
            cache_implementation="static",  # on a CPU twice as fast as a cache that grows
        )
        done = np.concatenate([done, written.cpu().numpy().astype(np.int32)])
        np.save(path, done)
        bar.update(len(written))
    bar.close()
    target.generation_config = kept
    return done


@torch.no_grad()
def likeliest(target: LlamaForCausalLM, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The `LISTED` likeliest next tokens at every place of `ids [B, T]` and their probabilities, both `[B, T, LISTED]`, sum 1."""
    top = target(input_ids=ids.to(target.device), use_cache=False).logits.topk(LISTED, dim=-1)
    return top.indices, top.values.softmax(-1)


def distillation_loss(draft_logits: torch.Tensor, tokens: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy `[]` of the draft's `[B, T, V]` against the target's `likeliest`: KL up to a constant."""
    return -(p * draft_logits.log_softmax(-1).gather(-1, tokens)).sum(-1).mean()


@torch.inference_mode()
def agreement(draft: LlamaForCausalLM, target: LlamaForCausalLM, held_out: Corpus, rows: int = 16) -> dict[str, float]:
    """How often the draft's favourite (`top1`) is the target's greedy token, or its first three (`top3`) hold it, by domain."""
    found = {}
    for domain in DOMAINS:
        ids = torch.from_numpy(held_out.rows(domain, ROW, rows, np.random.default_rng(0))).long().to(target.device)
        wanted = target(input_ids=ids).logits.argmax(-1, keepdim=True)
        best = draft(input_ids=ids).logits.topk(3, dim=-1).indices == wanted
        found[f"{domain} top1"] = float(best[..., 0].float().mean())
        found[f"{domain} top3"] = float(best.any(-1).float().mean())
    return found


def distill(
    target: LlamaForCausalLM,
    corpus: Corpus,
    held_out: Corpus,
    work: Path,
    budget: Budget,
    own_rows: int,
    batch: int = 16,
    lr: float = 4e-3,
) -> LlamaForCausalLM:
    """A trained draft; progress and checkpoints as in `loop.train`."""
    own = torch.from_numpy(own_text(target, corpus, work, own_rows)).long()
    chunks = [likeliest(target, rows) for rows in tqdm(own.split(batch), desc="the target's view of it")]
    own_tokens = torch.cat([tokens.int().cpu() for tokens, _ in chunks])  # asked once, used in every epoch
    own_p = torch.cat([p.half().cpu() for _, p in chunks])
    torch.manual_seed(0)
    device = target.device
    draft = llama(*DRAFT_SHAPE, target.config.vocab_size).to(device)

    def loss_of(step: int, share: float) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng([3, step])
        if rng.random() < OWN_SHARE:
            picks = torch.from_numpy(rng.choice(len(own), min(batch, len(own)), replace=False))
            ids, tokens, p = own[picks].to(device), own_tokens[picks].long().to(device), own_p[picks].float().to(device)
        else:
            ids = corpus.batch(batch, ROW, rng).to(device)
            tokens, p = likeliest(target, ids)
        return distillation_loss(draft(input_ids=ids, use_cache=False).logits, tokens, p), ids.numel()

    train("draft", draft, loss_of, lambda: agreement(draft, target, held_out), work, budget, lr, save_every=120.0)
    return draft
