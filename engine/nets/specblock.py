"""SpecBlock's net: a block of K dependent positions from one forward, and a head that says how sure each of them is.

Position k of a block predicts the token k + 1 places behind the block's own token. All K positions carry the same condition and token.
They differ in a learned position query and in their rotary position. Before each layer a position takes in the state of the position
before it.

The condition of a first block comes from the target's features. A block that goes on from another one takes as condition that block's
state at the position that predicted its token. The text so far is a stream of position-0 entries, whose keys and values all blocks
share. The LM head and final norm start as the target's, but they are the drafter's own, so that serving may adapt them.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.forward.llama_layer import GatedDecoderLayer, Linear, RMSNorm, Rotary, attend_with_optional_cache
from engine.nets.layer import FEATURES, Net, NetConfig
from engine.nets.specblock_compiled import CompiledSpecBlock

BUCKETS = (1, 4, 10)  # largest rank of the target's token in each of the first three buckets; the fourth holds the rest
SUMMARY = 15
RANK_HIDDEN = 256
LISTED = 10

Past = list[tuple[Tensor, Tensor] | None]  # a layer's keys and values so far, each [B, heads, M, head_dim]


def rank_head_inputs(log_q: Tensor) -> Tensor:
    """What the rank head reads of draft distributions `log_q [..., V]`, `[..., 15]`, in training and serving.

    The ten best log-probabilities, the gaps from the best to the second, third and fifth, the best probability and the entropy.
    """
    best = log_q.topk(min(LISTED, log_q.shape[-1]), dim=-1).values
    gaps = best[..., :1] - torch.cat([best[..., 1:3], best[..., 4:5]], -1)
    entropy = -(log_q.exp() * log_q).sum(-1, keepdim=True)
    return torch.cat([best, gaps, best[..., :1].exp(), entropy], -1)


def buckets_of_true_ranks(logits: Tensor, true_tokens: Tensor) -> Tensor:
    """The buckets `[...]` of the ranks that the tokens `true_tokens [...]` have in `logits [..., V]`."""
    rank = 1 + (logits > logits.gather(-1, true_tokens[..., None])).sum(-1)
    return torch.bucketize(rank, torch.tensor(BUCKETS, device=rank.device))


class SpecBlock(Net):
    def __init__(self, config: NetConfig, embedding: Tensor, head: Tensor):
        super().__init__(config, embedding, head)
        hidden = config.hidden
        self.cond_proj = Linear(FEATURES * config.feature_size, hidden)
        self.query_embed = nn.Parameter(torch.empty(config.depth, hidden).normal_())
        self.norm_condition, self.norm_token, self.norm_query = RMSNorm(hidden), RMSNorm(hidden), RMSNorm(hidden)
        self.fuse = Linear(3 * hidden, hidden)
        self.shifts = nn.ModuleList(Linear(2 * hidden, hidden) for _ in range(config.layers))
        for shift in self.shifts:  # at first a position keeps its own state
            nn.init.normal_(shift.weight, std=0.01)
            shift.weight.data[:, :hidden] += torch.eye(hidden)
        self.layers = nn.ModuleList(GatedDecoderLayer(hidden, config.heads, config.mlp) for _ in range(config.layers))
        self.norms = nn.ModuleList(RMSNorm(hidden) for _ in range(config.layers))
        self.rotary = Rotary.from_theta(hidden // config.heads, config.rope_theta)
        self.norm_out = RMSNorm(hidden)
        self.unembed = nn.Parameter(self.head.float().clone())
        self.rank_in = nn.Linear(hidden + SUMMARY, RANK_HIDDEN)
        self.rank_out = nn.Linear(RANK_HIDDEN, len(BUCKETS) + 1)

    def build_compiled(self) -> CompiledSpecBlock:
        return CompiledSpecBlock(self)

    def fuse_features(self, features: Tensor) -> Tensor:
        """`[..., H]` from the target's `features [..., 4, H]`."""
        return self.cond_proj(features[..., :FEATURES, :].flatten(-2))

    def layer_inputs(self, condition: Tensor, tokens: Tensor, block_positions: slice = slice(None)) -> Tensor:
        """The layers' inputs `[..., k, H]` at k `block_positions` of the blocks with `condition [..., H]` and `tokens [...]`."""
        token = self.norm_token(self.embed_tokens(tokens))
        prefix_weight, query_weight = self.fuse.weight.split([2 * self.config.hidden, self.config.hidden], 1)
        prefix = F.linear(torch.cat([self.norm_condition(condition), token], -1), prefix_weight)
        return prefix[..., None, :] + F.linear(self.norm_query(self.query_embed[block_positions]), query_weight)

    def block_inputs_and_predecessors(self, condition: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Of n whole blocks, as in `layer_inputs`: the layers' inputs `[..., n K, H]`, and what each takes in, `before [n K]`."""
        x = self.layer_inputs(condition, tokens).flatten(-3, -2)
        number = torch.arange(x.shape[-2], device=x.device)
        return x, torch.where(number % self.config.depth == 0, number, number - 1)

    def forward_block(
        self,
        tokens: Tensor,
        features: Tensor,
        anchor: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        kv: Tensor,
        rows: int | Tensor,
    ) -> Tensor:
        """As `engine.nets.parallel.Parallel.forward_block`. Slots are the further positions in the block of entry `anchor [1]`."""
        condition, number = self.fuse_features(features), torch.arange(len(positions), device=positions.device)
        x, before = self.layer_inputs(condition, tokens, slice(0, 1))[:, 0], number
        if further := len(number) - len(tokens):
            own, token = (each.index_select(0, anchor)[0] for each in (condition, tokens))
            x = torch.cat([x, self.layer_inputs(own, token, slice(1, None))])
            before = torch.cat([number[:-further], anchor, number[-further:-1]])
        return self(x[None], before, positions, mask, kv=kv, rows=rows)[0]

    def forward(
        self,
        x: Tensor,
        before: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        past: Past | None = None,
        kv: Tensor | None = None,
        rows: int | Tensor = 0,
    ) -> Tensor:
        """Last-layer states `[B, N, H]` of entries `x [B, N, H]`. Each takes in that of entry `before[i]`, itself at position 0.

        In training, keys and values are appended to `past`. Else they are written into the layers' `kv`, as by `write_kv_rows`.
        `mask` covers old and new ones.
        """
        rotary = self.rotary(positions)
        for index, (shift, norm, layer) in enumerate(zip(self.shifts, self.norms, self.layers, strict=True)):
            x = shift(torch.cat([x, x.index_select(-2, before)], -1))
            if past is None:
                x = layer(x, norm(x), rotary, mask, None if kv is None else kv[index], rows)
                continue
            queries, keys, values = layer.project_and_rotate_qkv(norm(x), rotary)
            if (before_it := past[index]) is not None:
                keys, values = torch.cat([before_it[0], keys], 2), torch.cat([before_it[1], values], 2)
            past[index] = keys, values
            x = layer.add_attention_and_mlp(x, attend_with_optional_cache(queries, keys, values, mask))
        return x

    def logits(self, states: Tensor) -> Tensor:
        """`[..., V]` from last-layer states `[..., H]`."""
        return F.linear(self.norm_out(states), self.unembed)

    def rank_head_logits(self, states: Tensor, log_q: Tensor) -> Tensor:
        """Rank-head logits `[..., 4]` over buckets, from states and the distributions at them. No gradient flows into either."""
        seen = torch.cat([self.norm_out(states).detach(), rank_head_inputs(log_q.detach())], -1)
        return self.rank_out(F.silu(self.rank_in(seen)))
