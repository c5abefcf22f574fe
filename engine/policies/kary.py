"""K-ary policy: the top-k children everywhere, down to a fixed depth (tree-based speculative decoding for nanoGPT)."""

from engine.policies.shared.asking import GrowingTree, Guess, LevelByLevelPolicy
from engine.tree import LARGEST_TREE

FULL = ((1, 2), (1, 4), (2, 2), (1, 7), (2, 3), (3, 2))  # depths and widths worth a try


class FullKaryTree(LevelByLevelPolicy):
    title = "full tree"
    about = "A full tree: the same number of branches everywhere."
    source = "tree-based speculative decoding for nanoGPT"
    supported_proposal_modes = frozenset({"ranked", "top"})

    def validate_and_precompute(self) -> None:
        """Raises `ValueError` when depth and width ask for more than `LARGEST_TREE` nodes; the node budget is not used."""
        size = count_full_tree_nodes_with_root(self.depth, self.width)
        if size > LARGEST_TREE:
            raise ValueError(
                f"A full tree of depth {self.depth} and width {self.width} has {size:,} nodes, over the limit of {LARGEST_TREE}. "
                "Choose a smaller depth or width (depth 3 and width 2 make 15), or the system tree, which keeps to a node budget."
            )

    @classmethod
    def list_candidate_shapes(cls, paper_width: int) -> list[tuple[int, int, int]]:
        return [(depth, wide, count_full_tree_nodes_with_root(depth, wide)) for depth, wide in FULL]

    def add_level_below(self, growth: GrowingTree, frontier: list[int], level: int) -> list[int]:
        rows = (
            self.rank_tokens_by_q_and_store_q(growth, frontier)
            if self.proposal_mode == "top"
            else growth.rank_guesses_after(frontier, self.width)
        )
        return growth.add_candidate_nodes(growth.build_candidates(frontier, rows))

    def rank_tokens_by_q_and_store_q(self, growth: GrowingTree, nodes: list[int]) -> list[list[Guess]]:
        """The most probable tokens behind each node by q alone, without noise. The tree keeps q."""
        log_q = growth.validated_log_q(nodes, on_host=True)
        if log_q is None:
            return []
        q = growth.sampling.scale_and_filter_logits(log_q).softmax(-1)
        growth.tree.q_rows.update(zip(nodes, q, strict=True))
        best = q.topk(min(self.width, q.shape[-1]))
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [list(zip(tokens, values, values, strict=True)) for tokens, values in rows]


def count_full_tree_nodes_with_root(depth: int, width: int) -> int:
    """The nodes of a full tree."""
    return sum(width**level for level in range(depth + 1))
