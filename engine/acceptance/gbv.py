"""Greedy multi-path block verification (Thomas and Pal 2026): the most promising of several chains is judged as one block.

At every node it follows the drawn token with the greatest p / q. Block verification then takes the law of that choice for q.
"""

import torch

from engine.acceptance.block import BlockVerification, DistributionByNode
from engine.tree import DraftTree


class GreedyMultiPathBlockVerification(BlockVerification):
    title = "greedy block"
    about = "Follows the guesses with the best p/q, and judges that chain as a whole."
    source = "Greedy Multi-Path Block Verification (Thomas and Pal 2026)"
    required_proposal_mode = "whole chains"

    def select_chain_and_draft_distributions(
        self, tree: DraftTree, p_of_node: DistributionByNode
    ) -> tuple[list[int], list[torch.Tensor]]:
        """Chains are ranked by their first tokens, then by their second, and so on. The best of them is chosen."""
        chain: list[int] = []
        laws: list[torch.Tensor] = []
        node, worse, chains = 0, 0.0, len(tree.draws.get(0, []))
        while drawn := tree.draws.get(node):
            q = tree.q_rows[node].double()
            rank = rank_tokens_by_likelihood_ratio(p_of_node(node), q)
            law, low, high = best_chain_token_distribution_and_bounds(q, rank, worse, chains)
            node = max(drawn, key=lambda child: int(rank[tree.tokens[child]]))
            token = tree.tokens[node]
            worse = float(low[token] / high[token])
            chain.append(node)
            laws.append(law)
        return chain, laws


def rank_tokens_by_likelihood_ratio(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The rank `[V]` of every token by p / q, then by its number. No two are equal, and tokens that q never draws have p / q = 0."""
    return torch.where(q > 0, p / q, 0.0).argsort(stable=True).argsort()


def best_chain_token_distribution_and_bounds(
    q: torch.Tensor, rank_by_token: torch.Tensor, chance_below: float, chain_count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The law `[V]` of the best chain's next token, given its tokens so far; and the bounds of every token's interval.

    It is known that no chain ranks above these tokens. `chance_below` is the chance, given this, that a single chain ranks below them;
    with 1 - `chance_below` it begins with them. Of [chance_below, 1) every next token has an interval [low, high), in the order of
    ranks. The best of K chains falls into it with probability (high^K - low^K) / (1 - chance_below^K). Differences of powers are
    written as products, because small intervals would round to 0.
    """
    ends = torch.empty_like(q).scatter_(0, rank_by_token, q).cumsum(0)[rank_by_token]
    low, high = chance_below + (1 - chance_below) * (ends - q), chance_below + (1 - chance_below) * ends
    each = sum(high**i * low ** (chain_count - 1 - i) for i in range(chain_count))
    return q * each / sum(chance_below**i for i in range(chain_count)), low, high
