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
from engine.lab.train.features import TrainingBatchBuilder
from engine.lab.train.loop import TrainingBudget, train_or_resume_within_budget
from engine.lab.train.pretrain import build_untrained_llama
from engine.lab.train.writing import ROW, load_or_write_target_rows

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


def distillation_loss(draft_logits: torch.Tensor, target_top_tokens: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy `[]` of the draft's `[B, T, V]` against the target's listed `target_top_tokens`, `p`: KL up to a constant."""
    return -(p * draft_logits.log_softmax(-1).gather(-1, target_top_tokens)).sum(-1).mean()


@torch.inference_mode()
def measure_agreement_by_domain(
    draft: LlamaForCausalLM, batch_builder: TrainingBatchBuilder, held_out: TokenCorpus
) -> dict[str, float]:
    """How often the draft's favourite (`top1`) is the target's greedy token, or its first three (`top3`) hold it, by domain."""
    found = {}
    for domain in DOMAINS:
        ids = (
            torch.from_numpy(
                held_out.draw_rows_from_document_starts(domain, ROW, JUDGED_ROWS, np.random.default_rng(0))
            )
            .long()
            .to(draft.device)
        )
        best = draft(input_ids=ids).logits.topk(3, dim=-1).indices == batch_builder(ids).tokens[..., :1].to(
            draft.device
        )
        found[f"{domain} top1"] = float(best[..., 0].float().mean())
        found[f"{domain} top3"] = float(best.any(-1).float().mean())
    return found


def distill_draft(
    target: LlamaForCausalLM,
    corpus: TokenCorpus,
    held_out: TokenCorpus,
    work_folder: Path,
    budget: TrainingBudget,
    target_written_rows: int,
    hidden_layers_heads_mlp: tuple[int, int, int, int],
    bf16: bool = False,
) -> LlamaForCausalLM:
    """A trained draft of that `hidden_layers_heads_mlp` for the target as it serves. Progress, checkpoints and `bf16` are as in
    `loop.train_or_resume_within_budget`.
    """
    own, batch = (
        torch.from_numpy(load_or_write_target_rows(target, corpus, work_folder, target_written_rows)).long(),
        ROWS[target.device.type],
    )
    batch_builder, views = TrainingBatchBuilder(target), []
    for rows in tqdm(own.split(batch), desc="the target's view of it"):  # asked once, used in every epoch
        seen = batch_builder(rows)
        views.append((seen.tokens.int().cpu(), seen.p.half().cpu()))
    own_tokens, own_p = map(torch.cat, zip(*views, strict=True))
    torch.manual_seed(0)
    device = target.device
    draft = build_untrained_llama(*hidden_layers_heads_mlp, target.config.vocab_size).to(device)

    def compute_loss_and_token_count(step: int, share: float) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng([3, step])
        if rng.random() < OWN_SHARE:
            picks = torch.from_numpy(rng.choice(len(own), min(batch, len(own)), replace=False))
            ids, tokens, p = own[picks].to(device), own_tokens[picks].long().to(device), own_p[picks].float().to(device)
        else:
            ids = corpus.draw_rows_of_mixed_domains(batch, ROW, rng).to(device)
            seen = batch_builder(ids).to_device_in_full_precision(device)
            tokens, p = seen.tokens, seen.p
        return distillation_loss(draft(input_ids=ids, use_cache=False).logits, tokens, p), ids.numel()

    figures = partial(measure_agreement_by_domain, draft, batch_builder, held_out)
    train_or_resume_within_budget(
        "draft",
        draft,
        compute_loss_and_token_count,
        figures,
        work_folder,
        budget,
        RATE,
        save_every_seconds=120.0,
        bf16=bf16,
    )
    return draft
