"""DySpec policy: a budget of draws, each spent where it is most likely to be accepted (DySpec, Algorithm 1).

The estimate is the draft's own. Behind a node of value v, a child drawn with probability q is worth v * q. The next draw there is worth
v * (1 - the probability drawn there so far). The heap decides where to draw next; every draw stays. Every node that gets children costs
one draft forward.
"""

import heapq

from engine.contracts import Drafter, Policy
from engine.policies.shared.asking import GrowingTree
from engine.sampling import Sampling
from engine.tree import DraftTree


class DySpec(Policy):
    title = "DySpec"
    about = "Each draw goes where it is most likely to be accepted."
    source = "DySpec, Algorithm 1"
    supported_proposal_modes = frozenset({"without replacement"})

    def grow(
        self, drafter: Drafter, root_token: int, root_position: int, sampling: Sampling, max_levels: int
    ) -> DraftTree:
        growth, deepest = GrowingTree(drafter, root_token, root_position, sampling), min(self.depth, max_levels)
        tree = growth.tree
        heap = [(-1.0, 0)] if deepest > 0 else []  # the value of the next draw behind a node, negative; the node
        undrawn, left = {}, {}
        while heap and len(tree) < self.nodes:
            _, node = heapq.heappop(heap)
            if node not in undrawn:
                q = growth.compute_and_store_draft_probabilities([node])
                if q is None:
                    continue
                [undrawn[node]], left[node] = (
                    sampling.draw_without_replacement(q, self.width, "draft", root_position, node),
                    1.0,
                )
            draw = next(undrawn[node], None)
            if draw is None:
                continue
            child = tree.record_drawn_child(node, *draw)
            left[node] -= tree.q[child]
            if left[node] > 0:
                heapq.heappush(heap, (-tree.score[node] * left[node], node))
            if tree.depth[child] < deepest and not growth.is_stop_node(child):
                heapq.heappush(heap, (-tree.score[child], child))
        return tree
