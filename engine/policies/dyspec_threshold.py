"""DySpec's threshold form: level by level, draw wherever the next draw is worth at least t (DySpec, Algorithm 2).

A budget of n nodes gives t = 1 / n. Within a level the most valuable draw comes first, so a spent budget stops further draws and drops
none. One draft forward per level.
"""

import heapq

from engine.policies.shared.asking import GrowingTree, LevelByLevelPolicy


class DySpecLevelThreshold(LevelByLevelPolicy):
    title = "DySpec by levels"
    about = "Level by level, a draw wherever it is worth its place."
    source = "DySpec, Algorithm 2"
    unused_budget_reason = "the other draws are worth too little"
    supported_proposal_modes = frozenset({"without replacement"})

    def add_level_below(self, growth: GrowingTree, frontier: list[int], level: int) -> list[int]:
        tree, threshold = growth.tree, 1 / self.nodes
        q = growth.compute_and_store_draft_probabilities(frontier) if len(tree) < self.nodes else None
        if q is None:
            return []
        rows = growth.sampling.draw_without_replacement(q, self.width, "draft", growth.position, level)
        undrawn = dict(zip(frontier, rows, strict=True))
        heap = [(-tree.score[node], node) for node in frontier]  # the value of the next draw behind a node, negative
        heapq.heapify(heap)
        found = []
        while heap and -heap[0][0] >= threshold and len(tree) < self.nodes:
            value, node = heapq.heappop(heap)
            draw = next(undrawn[node], None)
            if draw is None:
                continue
            child = tree.record_drawn_child(node, *draw)
            heapq.heappush(heap, (value + tree.score[child], node))
            if tree.score[child] >= threshold:
                found.append(child)
        return found
