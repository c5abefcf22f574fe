"""The embedded draft: one Llama layer, or two, that learns the target's own probabilities, on real text and on text the target wrote.

What counts is tau, so the loss is the divergence from the target's distribution. Most rows are the target's own writing, greedy and
sampled, because a draft sees such text while it serves.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import LlamaForCausalLM

from engine.lab.train.data import DOMAINS, TokenCorpus
from engine.lab.train.features import TargetObserver
from engine.lab.train.loop import TrainingBudget, train_within_budget
from engine.lab.train.pretrain import build_untrained_llama
from engine.lab.train.writing import ROW, write_target_text_rows

# Hidden, layers, heads and MLP of a target's draft, by the target's size. Four levels of the widest take about a fifth of the time
# in which two cores verify eight rows of the largest target in eight bits; of the narrowest, a twelfth.
DRAFT_SHAPES = {
    "11M": (128, 1, 2, 384),
    "16M": (128, 1, 2, 384),
    "28M": (192, 1, 3, 512),
    "67M": (256, 2, 4, 704),
}
OWN_SHARE = 0.65
ROWS = {"cpu": 16, "cuda": 64}  # of a step
JUDGED_ROWS, RATE = 16, 4e-3


def distillation_loss(draft_logits: torch.Tensor, tokens: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy `[]` of the draft's `[B, T, V]` against the target's listed `tokens`, `p`: KL up to a constant."""
    return -(p * draft_logits.log_softmax(-1).gather(-1, tokens)).sum(-1).mean()


@torch.inference_mode()
def measure_agreement_by_domain(
    draft: LlamaForCausalLM, observer: TargetObserver, held_out: TokenCorpus
) -> dict[str, float]:
    """How often the draft's favourite (`top1`) is the target's greedy token, or its first three (`top3`) hold it, by domain."""
    found = {}
    for domain in DOMAINS:
        ids = (
            torch.from_numpy(held_out.rows(domain, ROW, JUDGED_ROWS, np.random.default_rng(0))).long().to(draft.device)
        )
        best = draft(input_ids=ids).logits.topk(3, dim=-1).indices == observer(ids).tokens[..., :1].to(draft.device)
        found[f"{domain} top1"] = float(best[..., 0].float().mean())
        found[f"{domain} top3"] = float(best.any(-1).float().mean())
    return found


def distill_draft(
    target: LlamaForCausalLM,
    corpus: TokenCorpus,
    held_out: TokenCorpus,
    work: Path,
    budget: TrainingBudget,
    own_rows: int,
    shape: tuple[int, int, int, int],
    bf16: bool = False,
) -> LlamaForCausalLM:
    """A trained draft of that `shape` for the target as it serves. Progress, checkpoints and `bf16` are as in
    `loop.train_within_budget`.
    """
    own, batch = (
        torch.from_numpy(write_target_text_rows(target, corpus, work, own_rows)).long(),
        ROWS[target.device.type],
    )
    observer, views = TargetObserver(target), []
    for rows in tqdm(own.split(batch), desc="the target's view of it"):  # asked once, used in every epoch
        seen = observer(rows)
        views.append((seen.tokens.int().cpu(), seen.p.half().cpu()))
    own_tokens, own_p = map(torch.cat, zip(*views, strict=True))
    torch.manual_seed(0)
    device = target.device
    draft = build_untrained_llama(*shape, target.config.vocab_size).to(device)

    def loss_of(step: int, share: float) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng([3, step])
        if rng.random() < OWN_SHARE:
            picks = torch.from_numpy(rng.choice(len(own), min(batch, len(own)), replace=False))
            ids, tokens, p = own[picks].to(device), own_tokens[picks].long().to(device), own_p[picks].float().to(device)
        else:
            ids = corpus.draw_batch(batch, ROW, rng).to(device)
            seen = observer(ids).to(device)
            tokens, p = seen.tokens, seen.p
        return distillation_loss(draft(input_ids=ids, use_cache=False).logits, tokens, p), ids.numel()

    figures = partial(measure_agreement_by_domain, draft, observer, held_out)
    train_within_budget("draft", draft, loss_of, figures, work, budget, RATE, save_every=120.0, bf16=bf16)
    return draft
