"""What drafters on a device are made of: their contract, and entries of the text that wait for the next round. Knows no net."""

from typing import Any

import torch
from torch import Tensor

from engine.drafters.shared.stream import stream_start_after_first_token
from engine.forward.cache import KVCache, additive_mask
from engine.forward.runner import Runner
from engine.forward.runner_gpu import visible_slots
from engine.models.pairs import LoadedPair

UNLIMITED = 99  # levels of a drafter that goes on from its own guesses
CHUNK = 512  # entries of a prompt that are read together


def can_run_static_forwards(runner: Runner) -> bool:
    """Whether static forwards serve the model: it keeps no states and lies on one device."""
    return not (runner.spread or runner.recurrent)


class DrafterOnDevice:
    """Guesses on the device, in tensors of fixed shapes. Made by a pair and a net; `allocate_buffers` then makes its cache.

    A round calls `start_round_and_get_root_log_q`, then `log_q_of_level` for one `ExpandedLevelNodes` after another, then
    `commit`. All of them only queue work.
    """

    # The target's features that it reads, as `engine.contracts.Drafter.reads_features`
    reads_features: bool | tuple[int, ...] = False
    depth = UNLIMITED  # levels that it can guess
    most_forwards = UNLIMITED  # of its own in a round; it makes no more than one a level
    size, whole = 0, True  # bytes of its cache with its graphs, and whether memory sufficed for these
    log_q_by_depth: Tensor | list[Tensor]  # log-probabilities [depth, V] where all levels are guessed at once
    # int64 [n depth], of a rank head what `engine.contracts.RANK_HEAD` tells of the favourites' chain
    rank_buckets: Tensor

    def __init__(self, pair: LoadedPair, net: Any):
        """`net` is what `find_device_net` found."""
        self.target, self.device, self.net = pair.target, pair.target.device, net

    @classmethod
    def find_device_net(cls, pair: LoadedPair, drafter_name: str) -> Any:
        """The net or model that it drafts with; None where the pair has none that runs on a device."""
        return pair.net(drafter_name) if drafter_name in pair.learned else None

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        """Make room for a text of `capacity` tokens, trees of `depth` levels and `expanded_nodes` nodes asked about in a round."""

    def begin(self, prompt: list[int], features: Any) -> None:
        """Take in the context, as `engine.contracts.Drafter.begin`."""

    def start_round_and_get_root_log_q(self, root: Tensor, root_position: Tensor) -> Tensor:
        """Log-probabilities `[1, V]` behind the token `root [1]`, which stands at position `root_position [1]`."""
        raise NotImplementedError

    def log_q_of_level(self, frontier: Any, root_position: Tensor) -> Tensor:
        """Log-probabilities `[n, V]` behind the nodes of an `engine.policies.shared.growing_gpu.ExpandedLevelNodes`; here out of
        `log_q_by_depth`.
        """
        return self.log_q_by_depth[frontier.depth].expand(len(frontier.tokens), -1)

    def commit(
        self, tree: Any, path: Tensor, accepted_count: Tensor, bonus: Tensor, root_position: Tensor, features: Any
    ) -> None:
        """Take in the nodes `path [depth + 1]`: the root, `accepted_count [1]` accepted ones and zeros.

        `features [N, reads_features + 1, H]` are those of the tree's nodes.
        """


class PlainDecodingOnDevice(DrafterOnDevice):
    """Plain decoding: it drafts no token."""

    depth = 0

    @classmethod
    def find_device_net(cls, pair: LoadedPair, drafter_name: str) -> Any:
        return pair.target


class FeatureEntryDrafterOnDevice(DrafterOnDevice):
    """A drafter that reads an entry for every token of the text, with features of the target. Its rows stand where the tokens do.

    Entries of the last round wait in tensors that hold one for every level and the root. The first `count + 1` count; the others are
    written behind all rows, where nobody sees them. `offset` is 1 where an entry pairs a token with the features before it, and 0 where
    it is of the features' own token.
    """

    offset = 1

    def allocate_buffers(self, capacity: int, depth: int, expanded_nodes: int) -> None:
        self.steps = torch.arange(depth + 1, device=self.device)
        self.cache = self.create_entry_cache(capacity + expanded_nodes + 2 * (depth + 1))
        self.size, self.columns = self.cache.kv.nbytes, torch.arange(self.cache.capacity, device=self.device)
        self.tokens = torch.zeros(depth + 1, dtype=torch.long, device=self.device)
        taps = len(self.reads_features) if isinstance(self.reads_features, tuple) else 3
        self.features = torch.zeros(depth + 1, taps + 1, self.target.config.hidden_size, device=self.device)
        # How many entries wait beside one; where the first one stands; and where the stream begins
        self.count, self.entered, self.begun = torch.zeros(3, 1, dtype=torch.long, device=self.device).unbind()

    def create_entry_cache(self, capacity: int) -> KVCache:
        config = self.net.config
        width = config.hidden // config.heads
        return KVCache(config.layers, config.heads, width, capacity, torch.float32, self.device)

    def begin(self, prompt: list[int], features: Any) -> None:
        """Reads all entries but the last, which wait for the first round."""
        self.cache.clear()
        start, features = stream_start_after_first_token(prompt, features) if self.offset else (0, features)
        ids, count = torch.tensor(prompt, device=self.device)[start:], len(features)
        ready = max(0, count - 1)
        for at in range(0, ready, CHUNK):
            here = slice(at, min(at + CHUNK, ready))
            places = torch.arange(start + here.start, start + here.stop, device=self.device)
            self.forward_entries_into_cache(
                ids[here], features[here], places, places, torch.full_like(self.begun, start)
            )
        self.begun.fill_(start)
        self.entered.fill_(start)
        self.count.fill_(count - 1 - ready)
        self.tokens[:1], self.features[: count - ready] = ids[-1:], features[ready:count]

    def forward_entries_into_cache(
        self, tokens: Tensor, features: Tensor, positions: Tensor, cache_rows: Tensor, first_visible_row: Tensor
    ) -> Any:
        """Write the rows of n entries at `cache_rows [n]`. None sees a row before `first_visible_row [1]`. Returns what the net
        makes of them.
        """
        raise NotImplementedError

    def pending_entry_positions_and_cache_rows(self, root_position: Tensor) -> tuple[Tensor, Tensor]:
        """Positions and slots `[depth + 1]` of the entries that wait, the last of which stands at `root_position - 1 + offset`."""
        last = root_position - 1 + self.offset
        slots = last - self.count + self.steps
        counts = (self.steps <= self.count) & (slots >= 0)  # a capture runs it before there is any text
        return torch.where(counts, slots, last.clamp(min=0)), torch.where(counts, slots, self.columns[-1] - self.steps)

    def commit(
        self, tree: Any, path: Tensor, accepted_count: Tensor, bonus: Tensor, root_position: Tensor, features: Any
    ) -> None:
        below = torch.cat([path[1:], path[:1]])
        self.features.copy_(features.index_select(0, path))
        self.tokens.copy_(torch.where(self.steps == accepted_count, bonus, tree.tokens.index_select(0, below)))
        self.count.copy_(accepted_count)
        self.entered.copy_(root_position + self.offset)

    def causal_mask(self, own_rows: Tensor, first_row: Tensor) -> Tensor:
        """bool `[n, capacity]`: rows from `first_row` up to one's own."""
        return (self.columns <= own_rows[:, None]) & (self.columns >= first_row)

    def text_and_ancestor_mask(self, frontier: Any, root_position: Tensor, first_row: Tensor) -> Tensor:
        """bool `[n, capacity]`: the rows that the frontier's nodes see: the text's from `first_row` on, and their ancestors'."""
        return visible_slots(self.columns, root_position, frontier.visible_expansion_mask) & (self.columns >= first_row)

    def additive_mask_of(self, visible: Tensor) -> Tensor:
        return additive_mask(visible, visible.shape[1])
