"""DySpec's threshold form: level by level, draw wherever the next draw is worth at least t (DySpec, Algorithm 2).

A budget of n nodes gives t = 1 / n. Within a level the most valuable draw comes first, so a spent budget stops further draws and drops
none. One draft forward per level.
"""

import heapq

from engine.contracts import Counterpart, Drafter, Policy
from engine.policies.shared.asking import drawn_from
from engine.sampling import Sampling
from engine.tree import DraftTree


class DySpecThreshold(Policy):
    title = "DySpec by levels"
    about = "Level by level, a draw wherever it is worth its place."
    source = "DySpec, Algorithm 2"
    counterpart = Counterpart("tree of guesses")
    proposals = frozenset({"without replacement"})

    def grow(self, drafter: Drafter, root: int, position: int, sampling: Sampling, room: int) -> DraftTree:
        tree, frontier, threshold = DraftTree.rooted(root), [0], 1 / self.nodes
        for level in range(1, min(self.depth, room) + 1):
            q = drawn_from(drafter, tree, frontier, sampling) if frontier and len(tree) < self.nodes else None
            if q is None:
                break
            rows = sampling.distinct(q, self.width, "draft", position, level)
            undrawn = dict(zip(frontier, rows, strict=True))
            heap = [
                (-tree.score[node], node) for node in frontier
            ]  # the value of the next draw behind a node, negative
            heapq.heapify(heap)
            frontier = []
            while heap and -heap[0][0] >= threshold and len(tree) < self.nodes:
                value, node = heapq.heappop(heap)
                draw = next(undrawn[node], None)
                if draw is None:
                    continue
                child = tree.draw(node, *draw)
                heapq.heappush(heap, (value + tree.score[child], node))
                if tree.score[child] >= threshold:
                    frontier.append(child)
        return tree
