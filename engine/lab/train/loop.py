"""The training loop that every recipe shares: a budget, two optimisers, progress, validation, checkpoints and resume."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

# Of a run; the shorter one counts, so that a run of minutes is not half warm-up
WARM_UP_STEPS, WARM_UP_SHARE = 100, 0.05
DECAY = 0.1  # of hidden layers' matrices
SHOWN_EVERY = 2.0  # seconds between two looks of the bar: a GPU is waited for then
COEFFICIENTS, STEPS = (3.4445, -4.7750, 2.0315), 5  # of Muon's Newton-Schulz iteration
# A drafter's own head starts as the target's; at the full rate it drifts off before it gains
SLOW, SLOWNESS = ("unembed", "head"), 0.1


@dataclass(frozen=True)
class TrainingBudget:
    """How much a run may spend: `minutes` of wall-clock time, or `tokens` when that is set."""

    minutes: float
    tokens: int | None = None

    def spent_share(self, seconds: float, tokens: int) -> float:
        return min(1.0, tokens / self.tokens if self.tokens else seconds / 60 / self.minutes)


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """`[n, rows, cols]` with all singular values pushed towards 1 by Newton-Schulz steps."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, for weight matrices of hidden layers (Jordan et al. 2024; scaling of Liu et al. 2025).

    `torch.optim.Muon` computes the same in bfloat16, which a CPU without bfloat16 units emulates three times slower than float32.
    Here the arithmetic stays in the parameters' dtype, or in the one that autocast asks for. Matrices of one shape are orthogonalised
    in one batch.
    """

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = DECAY):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # takes no closure: the gradients exist already
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[torch.Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
            for (rows, cols), parameters in by_shape.items():
                directions = []
                for parameter in parameters:
                    state = self.state[parameter]
                    if not state:
                        state["momentum"] = torch.zeros_like(parameter)
                    state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                    directions.append(parameter.grad.lerp(state["momentum"], group["momentum"]))  # Nesterov
                updates = orthogonalise(torch.stack(directions))
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-group["lr"] * 0.2 * max(rows, cols) ** 0.5)


def muon_and_adamw_for(
    model: torch.nn.Module, learning_rate: float, weight_decay: float = DECAY
) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for tables with a row a token (tied with the head or not) and the norms."""
    named = dict(model.named_parameters())
    tables = {name for name in named if "embed" in name or "markov" in name or name == "head"}
    hidden = [p for name, p in named.items() if p.ndim == 2 and name not in tables]
    others = [p for name, p in named.items() if (p.ndim != 2 or name in tables) and name not in SLOW]
    groups = [{"params": others, "lr": 0.75 * learning_rate}]
    groups += [{"params": [named[name]], "lr": 0.75 * learning_rate * SLOWNESS} for name in SLOW if name in named]
    return [
        Muon(hidden, lr=learning_rate, weight_decay=weight_decay),
        torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.01),
    ]


def training_curve_path_of(work_folder: Path, run_name: str) -> Path:
    """The file of the run's curve: a line of JSON for every validation."""
    return work_folder / f"{run_name}.log.jsonl"


def learning_rate_factor(spent_share: float, step: int) -> float:
    """Learning-rate factor: linear warm-up, and linear to 5 % as this `spent_share` of the budget is spent."""
    return min(1.0, max((step + 1) / WARM_UP_STEPS, spent_share / WARM_UP_SHARE)) * (1.0 - 0.95 * spent_share)


def train_or_resume_within_budget(
    run_name: str,
    model: torch.nn.Module,
    compute_loss_and_token_count: Callable[[int, float], tuple[torch.Tensor, int]],
    compute_validation_figures: Callable[[], dict[str, float]],
    work_folder: Path,
    budget: TrainingBudget,
    learning_rate: float,
    save_every_seconds: float = 300.0,
    bf16: bool = False,
    weight_decay: float = DECAY,
) -> None:
    """Train `model` in place until the budget is spent.

    `compute_loss_and_token_count(step, share)` draws its rows by `step`, so a resumed run goes on where it stopped. Every
    `save_every_seconds` seconds and at the end `work_folder/RUN_NAME.pt` is replaced and `work_folder/RUN_NAME.log.jsonl` gets a
    line of `compute_validation_figures()`.
    With `bf16` products of matrices are taken in bfloat16. `weight_decay` is the weight decay of hidden layers' matrices.
    """
    optimizers = muon_and_adamw_for(model, learning_rate, weight_decay)
    rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    checkpoint, log = work_folder / f"{run_name}.pt", training_curve_path_of(work_folder, run_name)
    step, seen, spent = 0, 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=next(model.parameters()).device)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        step, seen, spent = state["step"], state["seen"], state["spent"]
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    products = torch.autocast(next(model.parameters()).device.type, torch.bfloat16, enabled=bf16)
    model.train()
    bar = tqdm(total=100.0, unit="%", desc=run_name, bar_format="{l_bar}{bar}| {elapsed}<{remaining} {postfix}")
    saved_at, last, share, shown = spent, time.perf_counter(), budget.spent_share(spent, seen), 0.0
    while share < 1.0:
        for group, base in zip(groups, rates, strict=True):
            group["lr"] = base * learning_rate_factor(share, step)
        with products:
            loss, tokens = compute_loss_and_token_count(step, share)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with products:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        step, seen = step + 1, seen + tokens
        now = time.perf_counter()
        spent, last = spent + now - last, now
        share = budget.spent_share(spent, seen)
        if now - shown >= SHOWN_EVERY or share >= 1.0:
            shown = now
            bar.set_postfix_str(f"loss {float(loss.detach()):.3f}, {seen / 1e6:.2f}M tokens", refresh=False)
            bar.update(round(100 * share - bar.n, 2))
        if spent - saved_at >= save_every_seconds or share >= 1.0:
            saved_at = spent
            figures = compute_validation_figures()
            model.train()
            bar.write(f"{seen / 1e6:.2f}M tokens: " + ", ".join(f"{key} {value:.3f}" for key, value in figures.items()))
            state = {"model": model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in optimizers]}
            torch.save({**state, "step": step, "seen": seen, "spent": spent}, checkpoint.with_suffix(".tmp"))
            checkpoint.with_suffix(".tmp").replace(checkpoint)
            with log.open("a") as out:
                out.write(json.dumps({"step": step, "tokens": seen, "minutes": round(spent / 60, 1), **figures}) + "\n")
            last = time.perf_counter()  # validation and saving are not part of the budget
    bar.close()
    model.eval()
