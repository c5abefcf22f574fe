"""Guiding: a constraint around a round. The target's logits behind every node are masked by it, and so are the guesses.

The mask belongs to p at every node: a node's constraint is its parent's, advanced by its token. Rules and policies do not know it.
A drafter's answers are masked too. A policy draws from what it was answered, so the q that a rule divides by is the q drawn from.
"""

import math
from collections.abc import Callable, Iterable

import torch

from engine.contracts import NO_GUESSES, SURE, Drafter
from engine.drafters.shared.wrapping import DrafterWrapper
from engine.models.constraint import ConstraintGuide
from engine.tree import DraftTree

Mask = Callable[[ConstraintGuide, DraftTree, torch.Tensor], torch.Tensor]  # what becomes of logits [N, V]
LONGEST_RUN = 12  # forced tokens that are offered as a run


def path_tokens_below_root(tree: DraftTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[each] for each in tree.path_below_root(node))


def mask_forbidden_logits(guide: ConstraintGuide, tree: DraftTree, logits: torch.Tensor) -> torch.Tensor:
    """`logits [N, V]` with minus infinity for what the constraint forbids behind each node."""
    return mask_all_but_allowed_tokens(logits, allowed_token_masks_by_node(guide, tree, range(len(tree))))


def mask_forbidden_logits_only_at_leaves(guide: ConstraintGuide, tree: DraftTree, logits: torch.Tensor) -> torch.Tensor:
    """Wrong on purpose (`engine.breaks`): as `mask_forbidden_logits`, but only behind nodes without children, where a text goes on."""
    rows = allowed_token_masks_by_node(guide, tree, [node for node in range(len(tree)) if node not in tree.parents])
    return mask_all_but_allowed_tokens(logits, rows)


def allowed_token_masks_by_node(
    guide: ConstraintGuide, tree: DraftTree, nodes: Iterable[int]
) -> dict[int, torch.Tensor]:
    """Which tokens may follow, bool `[V]`, by node. Left out are nodes where that does not matter."""
    rows = {node: guide.allowed_mask(path_tokens_below_root(tree, node)) for node in nodes}
    return {node: row for node, row in rows.items() if row is not None}


def mask_all_but_allowed_tokens(logits: torch.Tensor, allowed_by_row: dict[int, torch.Tensor]) -> torch.Tensor:
    """`logits [n, V]` with minus infinity for what is not allowed in these of its rows."""
    if not allowed_by_row:
        return logits
    mask = torch.ones(logits.shape, dtype=torch.bool)
    mask[list(allowed_by_row)] = torch.stack([*allowed_by_row.values()])
    return logits.masked_fill(~mask.to(logits.device), -math.inf)


class ConstraintGuidedDrafter(DrafterWrapper):
    """A drafter whose guesses keep to the constraint. Where one token alone is allowed, that is the guess, whatever it answers."""

    title, about, source = "guided", "Another drafter, whose guesses keep to the constraint.", "ours"

    def __init__(self, inner: Drafter, guide: ConstraintGuide):
        super().__init__(inner)
        self.title, self.guess_origin, self.capabilities = inner.title, inner.guess_origin, inner.capabilities
        self.stop_ids, self.score_hits = inner.stop_ids, inner.score_hits
        self.guide, self.whole = guide, guide.draft_masking == "masked"  # else forced tokens alone

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """The inner drafter's rows without what is forbidden, made distributions again."""
        answer, allowed = self.inner.log_q(tree, nodes), allowed_token_masks_by_node(self.guide, tree, nodes)
        forced = [node for node, row in allowed.items() if int(row.sum()) == 1]
        if self.guess_origin == NO_GUESSES or (answer is None and not forced):
            return None
        if answer is None:
            width = len(allowed[forced[0]])
            answer = torch.full((len(nodes), width), -math.log(width))
        kept = {at: allowed[node] for at, node in enumerate(nodes) if node in (allowed if self.whole else forced)}
        if not kept:
            return answer
        rows = mask_all_but_allowed_tokens(answer, kept)
        lost = rows.amax(-1, keepdim=True) == -math.inf  # the drafter ruled out all that is allowed
        return torch.where(lost, mask_all_but_allowed_tokens(torch.zeros_like(rows), kept), rows).log_softmax(-1)

    def draft_free_chain_and_token_chance(self, tree: DraftTree, node: int) -> tuple[list[int], float]:
        """Forced tokens, else the inner drafter's copies up to the first that is forbidden."""
        path = path_tokens_below_root(tree, node)
        if run := self.guide.forced_tokens_after(path, LONGEST_RUN):
            return run, SURE
        run, chance = self.inner.draft_free_chain_and_token_chance(tree, node)
        for length, token in enumerate(run):
            row = self.guide.allowed_mask((*path, *run[:length]))
            if self.whole and row is not None and not row[token]:
                return run[:length], chance
        return run, chance
