"""A target's embedding and head, and how a net that is narrower than its target shares them. Knows tensors alone."""

from typing import TYPE_CHECKING

from torch import Tensor
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from engine.nets.layer import Net


def tables_of(target: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """The target's embedding and head, each `[V, H]`."""
    return target.get_input_embeddings().weight, target.get_output_embeddings().weight


def narrower(table: Tensor, hidden: int) -> Tensor:
    """`[V, hidden]` float32: means of H / hidden numbers of `table [V, H]`. Raises `ValueError` where H is no multiple of `hidden`."""
    if table.shape[1] % hidden:
        raise ValueError(
            f"A drafter with a hidden size of {hidden} cannot share the tables of a target with {table.shape[1]}, which is no "
            "multiple of it. Train it with tables of its own, or with another --hidden."
        )
    return table.detach().float().view(len(table), -1, hidden).mean(1)


def share(net: "Net", embedding: Tensor, head: Tensor) -> None:
    """Puts the target's tables, each `[V, H]` and made `narrower`, in place of the net's own. They are not trained and not saved."""
    for name, table in (("embedding", embedding), ("head", head)):
        if name in net.tables:
            delattr(net, name)
            net.register_buffer(name, narrower(table, net.config.hidden), persistent=False)
