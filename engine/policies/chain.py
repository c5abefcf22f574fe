"""Chain policy: K tokens in a row, the classic draft (Leviathan et al. 2023; Chen et al. 2023)."""

from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy


class Chain(LevelByLevelPolicy):
    title = "chain"
    about = "One guess after another, no branches."
    source = "Leviathan et al. 2023, Chen et al. 2023"
    can_branch = False
    supported_proposal_modes = frozenset(
        {"ranked", "one draw", "with replacement", "without replacement", "whole chains"}
    )

    @classmethod
    def list_candidate_shapes(cls, paper_width: int) -> list[tuple[int, int, int]]:
        return [(depth, 1, depth + 1) for depth in (1, 2, 3, 4, 6, 8)]

    def add_level_below(self, growth: GrowingTree, frontier: list[int], level: int) -> list[int]:
        tree, sampling, [node] = growth.tree, growth.sampling, frontier
        if self.proposal_mode == "ranked":
            return [
                tree.add(node, token, tree.score[node] * q, q)
                for [(token, _, q)] in growth.rank_guesses_after([node], 1)
            ]
        log_q = growth.validated_log_q([node], on_host=True)
        if log_q is None:
            return []
        q = tree.q_rows[node] = sampling.probabilities(log_q[0])
        token = sampling.draw_index_by_weight(q, "draft", growth.position, node)
        return [tree.record_drawn_child(node, token, float(q[token]))]
