"""How wide a drafter is beside its target, and what the tables of a narrower one start from. Knows weights; knows no recipe."""

from typing import NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from engine.forward.sizes import mlp_width_of
from engine.nets import NetConfig

# Each of a net's layers costs at each level what one of the target's layers costs, if it is as wide, and one core drafts where all
# cores verify. Beside 8 layers of 640 in eight bits, on two cores, four levels of EAGLE took 0.96 of a verification of eight rows, and
# 0.2 at 320. So a drafter of a wide and shallow target has half its width. In a deep target a layer is a small part.
SHALLOW, NARROW = 16, 512  # layers, and hidden size
MLP_SHARE, MLP_MULTIPLE = 8 / 3, 64  # of a net with a width of its own: Llama's share


class DrafterSizes(NamedTuple):
    """A drafter's sizes in `NetConfig`; `target_hidden` is 0 where `hidden` is the target's."""

    hidden: int
    heads: int
    mlp: int
    target_hidden: int = 0


def choose_drafter_sizes(target_config: PreTrainedConfig, requested_hidden: int | None = None) -> DrafterSizes:
    """The sizes of a drafter for this target. `requested_hidden` is the width that is asked for; None leaves it to the target's sizes.

    Raises `ValueError` for a width that is no multiple of the size of the target's heads, and for one beyond the target's.
    """
    wide, heads = target_config.hidden_size, target_config.num_attention_heads
    size = wide // heads
    if requested_hidden is None:
        halved = wide > NARROW and target_config.num_hidden_layers < SHALLOW and heads > 1
        requested_hidden = heads // 2 * size if halved else wide
    if requested_hidden % size or not size <= requested_hidden <= wide:
        raise ValueError(
            f"A drafter for this target must have a hidden size that is a multiple of {size}, the size of its heads, and at most "
            f"{wide}; got {requested_hidden}."
        )
    if requested_hidden == wide:
        return DrafterSizes(wide, heads, mlp_width_of(target_config))
    mlp = -int(-requested_hidden * MLP_SHARE // MLP_MULTIPLE) * MLP_MULTIPLE
    return DrafterSizes(requested_hidden, requested_hidden // size, mlp, wide)


@torch.no_grad()
def initial_embedding_head_and_norm(
    target: PreTrainedModel, config: NetConfig
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a net begins with: embedding and head, both `[V, hidden]`, and the weight `[hidden]` of the last norm.

    They are the target's own, or for a net with a width of its own their projections. The head takes in the norm's weight then, and the
    factor by which fewer normed numbers are shorter.
    """
    embedding, head = target.get_input_embeddings().weight.detach(), target.get_output_embeddings().weight.detach()
    norm = target.model.norm.weight.detach()
    if not config.target_hidden:
        return embedding, head, norm
    embedding, head = embedding.float(), head.float() * norm.float()
    longer = (config.target_hidden / config.hidden) ** 0.5
    head = head @ principal_directions_of(head, config.hidden) * longer
    return (
        embedding @ principal_directions_of(embedding, config.hidden),
        head,
        torch.ones(config.hidden, device=head.device),
    )


@torch.no_grad()
def principal_directions_of(table: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` directions `[H, count]` along which the rows of `table [V, H]` are longest."""
    return torch.linalg.eigh(table.T @ table).eigenvectors[:, -count:]
