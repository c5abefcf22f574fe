"""A drafter, a policy, a rule and a net that the engine has never heard of, as someone adding parts would write them."""

import torch

from engine.acceptance.token_match import TokenMatch
from engine.contracts import Drafter
from engine.forward.llama_layer import Linear
from engine.models.pairs import LoadedPair
from engine.nets.layer import Net, NetConfig
from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy
from engine.tree import DraftTree

PERIOD = 3  # tokens that are said again


class Echo(Drafter):
    title = "echo"
    about = "Says the last three tokens again, and again."
    source = "a test"

    def __init__(self, pair: LoadedPair, capacity: int):
        self.vocab, self.text = pair.target.vocab, [0] * PERIOD

    def begin(self, prompt: list[int], features: torch.Tensor | None = None) -> None:
        self.text += prompt

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        """The token of a period ago is the likeliest, then the tokens after it."""
        rows = torch.ones(len(nodes), self.vocab)
        for row, node in zip(rows, nodes, strict=True):
            for back, token in enumerate(
                (self.text + [tree.tokens[each] for each in tree.path_below_root(node)])[-PERIOD:]
            ):
                row[token] += self.vocab / 2**back
        return (rows / rows.sum(-1, keepdim=True)).log()

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: torch.Tensor | None = None) -> None:
        self.text += [*(tree.tokens[node] for node in path), bonus]


class Comb(LevelByLevelPolicy):
    title = "comb"
    about = "A chain of favourites, with a tooth for every other guess."
    source = "a test"
    supported_proposal_modes = frozenset({"ranked"})

    def add_level_below(self, growth: GrowingTree, frontier: list[int], level: int) -> list[int]:
        left = self.nodes - len(growth.tree)
        return growth.add_candidate_nodes(growth.rank_candidates(frontier, min(self.width, left)) if left else [])[:1]


class Again(TokenMatch):
    title = "again"
    about = "Token match under a name of its own."
    source = "a test"


class Habit(Net):
    """A matrix between a token's embedding and the head."""

    def __init__(self, config: NetConfig, embedding: torch.Tensor, head: torch.Tensor):
        super().__init__(config, embedding, head)
        self.turn = Linear(config.hidden, config.hidden)

    def build_compiled(self) -> None:
        """There are no compiled loops of this net."""

    def log_q(self, tokens: list[int]) -> torch.Tensor:
        return self.apply_lm_head(self.turn(self.embed_tokens(torch.tensor(tokens)))).log_softmax(-1)


class Habitual(Drafter):
    title = "habit"
    about = "Guesses what a learned matrix says of the last token."
    source = "a test"

    def __init__(self, pair: LoadedPair, capacity: int):
        """Raises `ValueError` when the pair has no such net."""
        self.net = pair.net("habit")

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor:
        return self.net.log_q([tree.tokens[node] for node in nodes])
