"""Auto policy: the tree that pays on this machine for this text, decided anew every round. Ours.

What counts is tokens a second. At the running rate `r` (tokens a ms), each ms must win `r` tokens. A draft level is asked for while its
expected tokens exceed r times its cost. A node stays while its chance of acceptance exceeds r times the cost of one more row in the
verification. This maximises a ratio with the help of its own value (Dinkelbach 1967). A table turns the drafter's scores into chances:
it counts how often such scores came true in this text. It begins with what the pair's calibration counted, where there is one. After
drafting has not paid, rounds without a draft follow, more each time; their trees hold what cannot be wrong alone.
Free copies from the text extend a tree where drafting stops. They replace drafting where they promise more tokens a ms.
"""

from dataclasses import dataclass

import numpy as np

from engine.contracts import SURE, Drafter, Policy
from engine.kernels.expansion import BINS, COPY, KINDS, TreeExpansion, calibrated_chance_and_cell
from engine.policies.shared.growing import grow_tree_of_favourites
from engine.sampling import Sampling
from engine.tree import DraftTree

FIRST_TAU = 3.0  # tokens a round that running figures begin with, with the weight of two rounds
CAUTION = 1.25  # a gain must be so many times its cost: speed is flat around the best size, and small trees are also right early on
FIRST_REACH = 5.0  # levels at first
BEYOND, SLOWLY = 4.0, 0.35  # levels to try beyond the accepted path; share of the way there that is taken each round
CALIBRATED = 20.0  # guesses that a calibration counts for in a cell of the table, at most
FADE = 0.9  # share of running figures that is kept each round
LONGEST_REST = 32  # rounds without a draft between two tries, at most


@dataclass
class FadingTokenRate:
    """Tokens won and ms spent, older rounds fading."""

    tokens: float
    spent_ms: float

    @property
    def tokens_per_ms(self) -> float:
        return self.tokens / self.spent_ms

    def add_round(self, tokens: int, ms: float) -> None:
        self.tokens, self.spent_ms = FADE * self.tokens + tokens, FADE * self.spent_ms + ms


class CostAdaptiveTree(Policy):
    title = "auto"
    about = "As many guesses as pay on this machine, for this text, right now."
    source = "ours: measured costs of forwards, and how often guesses came true so far"
    reads_costs = True

    def validate_and_precompute(self) -> None:
        """Depth, width and nodes are limits."""
        self.verify_ms = [self.costs.interpolate_verify_ms(rows) for rows in range(self.nodes + self.depth + 2)]
        self.plain = 1.0 / self.verify_ms[1]  # tokens a ms without a draft
        # By kind and score: first the guesses that came true, then all guesses whose parents did.
        self.chances = np.zeros((2, KINDS * BINS))
        self.expansion = TreeExpansion(self.depth, self.width, beam_width=self.width, chances=self.chances)
        first = 2 * FIRST_TAU, 2 * self.costs.round_ms(8, 4)
        self.pace, self.drafted = (
            FadingTokenRate(*first),
            FadingTokenRate(*first),
        )  # of all rounds; of rounds with a draft forward
        self.begun = False
        self.pause = self.rest = 0
        self.reach = FIRST_REACH  # levels at most, by how far paths went lately: scores are too hopeful on new text
        self.levels = 0  # draft forwards of the last tree
        self.resting = False
        self.grown = 1  # nodes of the last tree before copies
        self.copied = 0  # the cell of `chances` for the last copies

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        if not self.begun:
            self.begin_with_calibrated_chances(drafter, sampling)
        self.levels, self.no_guess_reason = 0, ""
        self.resting = self.rest > 0
        if self.resting:
            self.no_guess_reason = explain_skipped_drafting(self.rest)
            self.rest -= 1
            return self.grow_forced_chain(drafter, root_token, max_levels)
        rate = CAUTION * max(self.pace.tokens_per_ms, self.plain)
        row_ms = (self.verify_ms[self.nodes] - self.verify_ms[1]) / (self.nodes - 1)
        max_levels = min(self.depth, max_levels)
        terms, counts = self.expansion.terms, self.expansion.counts
        terms["least"] = terms["free_promise"] = rate * row_ms
        terms["promise"], terms["reach"] = rate * (row_ms + self.costs.level_ms), round(self.reach)
        levels = 0 if self.is_copying_faster_than_drafting(drafter, root_token, max_levels) else max_levels
        tree = grow_tree_of_favourites(self.expansion, drafter, root_token, root_position, sampling, levels)
        self.levels, self.grown = counts["asked"], len(tree)
        self.append_copies_worth_verifying(drafter, tree, counts["tip"], max_levels, rate * row_ms)
        pruned = self.prune_to_best_paying_nodes(tree, rate)
        if len(pruned) == 1 and self.levels:
            self.no_guess_reason = (
                "A guess was drafted, but it was not likely enough to be worth its row in the target's forward."
            )
        return pruned

    def begin_with_calibrated_chances(self, drafter: Drafter, sampling: Sampling) -> None:
        """Put what a calibration counted of the drafter into the table, where there is one."""
        self.begun = True
        if drafter.score_hits is not None:
            hits, guesses = map(np.array, drafter.score_hits[0 if sampling.greedy else 1])
            weight = np.minimum(1.0, CALIBRATED / np.maximum(guesses, 1))
            self.chances[:, : len(hits)] = hits * weight, guesses * weight

    def grow_forced_chain(self, drafter: Drafter, root_token: int, max_levels: int) -> DraftTree:
        """A chain of tokens that cannot be wrong, such as those that a constraint forces. It needs no draft forward."""
        tree, node = DraftTree.from_root_token(root_token), 0
        chain, score = draft_free_chain_until_stop(drafter, tree, 0)
        if score >= SURE:
            for token in chain[: min(self.depth, self.nodes - 1, max_levels)]:
                node = tree.add(node, token, score, score)
        return tree

    def is_copying_faster_than_drafting(self, drafter: Drafter, root_token: int, max_levels: int) -> bool:
        """Whether a round of copies alone promises at least as many tokens a ms as rounds with draft forwards gave."""
        chain, each = draft_free_chain_until_stop(drafter, DraftTree.from_root_token(root_token), 0)
        if not chain:
            return False
        promised = sum(each**place for place in range(min(len(chain), max_levels) + 1))
        return promised / self.verify_ms[min(len(chain), max_levels) + 1] >= self.drafted.tokens_per_ms

    def append_copies_worth_verifying(
        self, drafter: Drafter, tree: DraftTree, node: int, max_levels: int, min_value: float
    ) -> None:
        """Add copies behind the node while each is worth more than `min_value`. Node -1 stands for none."""
        chain, score = draft_free_chain_until_stop(drafter, tree, node) if node >= 0 else ([], 0.0)
        if not chain:
            return
        likely, self.copied = calibrated_chance_and_cell(self.chances, score, COPY)
        for token in chain[: max_levels - tree.depth[node]]:
            value = tree.score[node] * likely
            if value <= min_value:
                break
            node = tree.add(node, token, value, score)

    def prune_to_best_paying_nodes(self, tree: DraftTree, tokens_per_ms: float) -> DraftTree:
        """The tree of its best nodes, as many as win the most beyond their cost."""
        ordered = len(tree) == self.grown  # without copies, `expansion.best` has the order already
        order = (
            self.expansion.best[: self.grown - 1].tolist()
            if ordered
            else tree.select_highest_scored_nodes(self.nodes - 1)
        )
        worth, best, most = 0.0, 0, -tokens_per_ms * self.verify_ms[1]
        for count, node in enumerate(order[: self.nodes - 1], 1):
            worth += tree.score[node]
            if (gain := worth - tokens_per_ms * self.verify_ms[count + 1]) > most:
                best, most = count, gain
        return tree if best == len(tree) - 1 else tree.subtree([0, *sorted(order[:best])])

    def learn_from_accepted_path(self, tree: DraftTree, path: list[int]) -> None:
        if self.resting:
            return
        reached, cells = {0, *path}, self.expansion.columns["cell"]
        for node in range(1, len(tree)):
            if tree.parents[node] in reached:
                key = tree.creation_indices[node]
                cell = cells[key] if key < self.grown else self.copied
                self.chances[0, cell] += node in reached
                self.chances[1, cell] += 1
        if self.levels and len(path) >= min(self.levels, max(tree.depth)):
            self.reach = min(self.reach + 2, self.depth)
        elif self.levels:
            self.reach = max(2.0, self.reach + SLOWLY * (len(path) + BEYOND - self.reach))
        emitted, spent = len(path) + 1, self.verify_ms[len(tree)] + self.costs.draft_ms(self.levels)
        self.pace.add_round(emitted, spent)
        if self.levels:
            self.drafted.add_round(emitted, spent)
        if self.pace.tokens_per_ms >= self.plain:
            self.pause = 0
        elif emitted / spent >= self.plain:
            self.pause //= 2
        else:
            self.pause = min(2 * self.pause or 1, LONGEST_REST)
        self.rest = self.pause


def explain_skipped_drafting(rounds_until_try: int) -> str:
    """Why no guess is drafted in this round and those up to the next try, `rounds_until_try` in all."""
    until = (
        "the next round drafts again"
        if rounds_until_try == 1
        else f"the next try comes {rounds_until_try} rounds from here"
    )
    return f"Guesses cost more time here than they won lately, so none is drafted; {until}."


def draft_free_chain_until_stop(drafter: Drafter, tree: DraftTree, node: int) -> tuple[list[int], float]:
    """`Drafter.draft_free_chain_and_token_chance`, up to the first token that ends the text."""
    chain, score = drafter.draft_free_chain_and_token_chance(tree, node)
    end = next((place for place, token in enumerate(chain) if token in drafter.stop_ids), len(chain))
    return chain[: end + 1], score
