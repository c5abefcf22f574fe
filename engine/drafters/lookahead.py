"""Lookahead drafter: the target guesses far ahead by itself, and runs of its guesses are tried when their first token comes up.

Source: Lookahead Decoding (Fu et al. 2024). A window holds what the target would write at the next places, on several levels. Each
level is read off the verification of the levels before it (Jacobi iteration). One token of every level and the newest one, in the order
of their places, are an n-gram. A pool keeps the latest n-grams by their first token. Those of the root are verified beside the window.

The window is a part of the tree. Its first level is a chain below the root. Behind each of the chain's nodes, the root included, hang
the tokens of the other levels, each below the one before. Ancestors are then exactly what the paper's mask shows each token.

Two things differ from the paper: a token of the window that is the target's own is accepted like any other guess, and the window begins
with the text's tokens in their order, where the paper draws them.
"""

import math

import torch

from engine.contracts import COPIES, OWN_TREE, Drafter, Features
from engine.tree import DraftTree

GRAM = 4  # tokens of an n-gram, its first included
KEPT = 16  # n-grams that the pool keeps of each first token
CHANCE = 0.5  # of any guess; nothing is known about them


class LookaheadDrafter(Drafter):
    title = "lookahead"
    about = "Tries runs of tokens that the target guessed by itself, far ahead of the text."
    source = "Lookahead Decoding (Fu et al. 2024)"
    guess_origin = COPIES
    no_guess_reason = "No run of tokens that begins with this one has been collected yet."
    capabilities = frozenset({OWN_TREE})

    def begin(self, prompt: list[int], features: Features = None) -> None:
        self.text, self.copied = list(prompt), 0
        self.levels: list[list[int]] = []  # the window's tokens
        self.pool: dict[int, list[tuple[int, ...]]] = {}
        self.window: DraftTree | None = None  # the tree that holds the window now
        self.columns: list[list[int]] = []  # the window's nodes in it: from the chain, or the root, down

    # ---- the tree

    def build_own_tree(self, root_token: int, max_levels: int, width: int, max_nodes: int) -> DraftTree:
        """The window as wide as depth and half of the nodes allow, and up to `width` n-grams of the root.

        No window fits into fewer than two levels or 2 x GRAM - 1 nodes. N-grams then come from the text and these guesses alone.
        """
        tree, self.window = DraftTree.from_root_token(root_token), None
        if not self.levels and (columns := min(max_levels - GRAM + 3, (max_nodes - 1) // 2 // (GRAM - 1))) > 0:
            self.levels = [self.take_next_text_tokens_cyclically(columns + GRAM - 3)]
        if self.levels and len(self.levels[0]) + len(self.levels) - 1 <= max_levels:
            self.columns, self.window = self.add_window_nodes_by_column(tree), tree
        for gram in self.pool.get(root_token, ())[: -width - 1 : -1]:
            node = 0
            for token in gram[: min(max_levels, max_nodes - len(tree))]:
                node = get_or_add_child(tree, node, token)
        return tree

    def add_window_nodes_by_column(self, tree: DraftTree) -> list[list[int]]:
        """Add the window below the root. Returns its columns."""
        first, *others = self.levels
        chain = [0]
        for token in first:
            chain.append(get_or_add_child(tree, chain[-1], token))
        columns = [[node] for node in chain[-len(others[0]) :]] if others else [[node] for node in chain[1:]]
        for level in others:
            for column, token in zip(columns, level, strict=True):
                column.append(get_or_add_child(tree, column[-1], token))
        return columns

    def take_next_text_tokens_cyclically(self, count: int) -> list[int]:
        """The next `count` tokens of the text. After its end it begins again."""
        self.copied += count
        return [self.text[at % len(self.text)] for at in range(self.copied - count, self.copied)]

    # ---- what a verification says

    def observe_target_logits(self, tree: DraftTree, logits: torch.Tensor, path: list[int]) -> None:
        """Read the next level off the window's columns. Of a tree without a window every node's last tokens make an n-gram."""
        favourites = logits.argmax(-1).tolist()
        if tree is not self.window:
            for node in range(len(tree)):
                run = [*self.text[1 - GRAM :], *(tree.tokens[each] for each in tree.path_below_root(node))][1 - GRAM :]
                self.store_full_length_ngram_as_latest([*run, favourites[node]])
            return
        newest = [favourites[column[-1]] for column in self.columns]
        if len(self.levels) == GRAM - 1:
            for column, token in zip(self.columns, newest, strict=True):
                self.store_full_length_ngram_as_latest([*(tree.tokens[node] for node in column), token])
        self.levels = self.build_next_window_levels(newest, len(path))

    def build_next_window_levels(self, newest_level: list[int], accepted_count: int) -> list[list[int]]:
        """The next round's window: a level deeper, a position and the accepted tokens further on. The text fills what is missing."""
        levels = self.levels
        if len(levels) == GRAM - 1:
            levels = [levels[1][1:], *levels[2:], newest_level]
        else:
            levels = [*(level[1:] for level in levels), newest_level if len(levels) == 1 else newest_level[1:]]
        return [
            (level[accepted_count:] + self.take_next_text_tokens_cyclically(accepted_count))[: len(level)]
            for level in levels
        ]

    def store_full_length_ngram_as_latest(self, ngram: list[int]) -> None:
        """Put the n-gram into the pool as the latest of its first token. A shorter run is none."""
        if len(ngram) == GRAM:
            known = self.pool.setdefault(ngram[0], [])
            rest = tuple(ngram[1:])
            if rest in known:
                known.remove(rest)
            known.append(rest)
            del known[:-KEPT]

    def commit(self, tree: DraftTree, path: list[int], bonus: int, features: Features = None) -> None:
        self.text += [*(tree.tokens[node] for node in path), bonus]

    # ---- for other policies

    def log_q(self, tree: DraftTree, nodes: list[int]) -> torch.Tensor | None:
        """What the pool has behind the node, the latest first, each half as likely as the one before. Nothing else is ruled in."""
        found = [self.list_pooled_continuations(tree, node) for node in nodes]
        if not any(found):
            return None
        rows = torch.zeros(len(nodes), self.vocab)
        for row, tokens in zip(rows, found, strict=True):
            if tokens:
                row.fill_(-math.inf)
                row[tokens] = torch.tensor([-math.log(2) * place for place in range(len(tokens))])
        return rows.log_softmax(-1)

    def list_pooled_continuations(self, tree: DraftTree, node: int) -> list[int]:
        """The tokens that continue the longest n-gram prefix at the end of the node's path, the latest n-gram first."""
        run = [tree.tokens[each] for each in (0, *tree.path_below_root(node))]
        for length in range(min(GRAM - 1, len(run)), 0, -1):
            first, *behind = run[-length:]
            grams = [gram for gram in self.pool.get(first, ()) if gram[: length - 1] == tuple(behind)]
            if grams:
                return list(dict.fromkeys(gram[length - 1] for gram in reversed(grams)))
        return []


def get_or_add_child(tree: DraftTree, node: int, token: int) -> int:
    """The child of the node that carries the token. It is added where there is none."""
    found = tree.find_child_with_token(node, token)
    return tree.add(node, token, tree.score[node] * CHANCE, CHANCE) if found is None else found
