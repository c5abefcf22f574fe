"""EAGLE's net (Li et al. 2024-2025; features and training as in EAGLE-3): one layer that goes on from the target's hidden states.

An entry pairs a token with the feature behind the token before it. The feature is fused from layers of the target for text that the
target has read, and is the drafter's own output for drafted tokens. The net has its own head over the most frequent tokens: its id `i`
is the target's `i + offsets[i]`. Nets that others published differ in what `EagleForm` says.
"""

import sys
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.forward.cache import KVCache, additive_mask
from engine.forward.devices import select_rows, upload
from engine.forward.layer_ops import expand_log_q_to_full_vocab
from engine.forward.llama_layer import EPS, GatedDecoderLayer, Linear, RMSNorm, Rotary
from engine.nets.eagle_compiled import CompiledEagle, CompiledEagleSession
from engine.nets.layer import FEATURES, Net, NetConfig

WINDOW = 256  # rows that a trained net attends to: those of a training row, so that drafting does not slow down as a text grows


@dataclass(frozen=True)
class EagleForm:
    """What a published config says beside the sizes of `NetConfig`.

    `reads_features` are the target's layers that are read, by how many are behind each, and `target_hidden` is their size. A token
    attends to `sliding_window` positions, 0 for all. With `normed_residual` the residual stream begins with the normed feature, and
    with `normed_output` drafted tokens go on from the final norm's output. All layers' features pass one norm with
    `normed_input`, and each its own with `normed_features`. A net with a `mask_token_id` is P-EAGLE's: it guesses all depths at
    once.
    """

    target_hidden: int
    kv_heads: int
    head_dim: int
    eps: float
    reads_features: tuple[int, ...]
    rotary: Rotary = field(compare=False)
    sliding_window: int = 0
    normed_residual: bool = False
    has_head_norms: bool = False
    normed_input: bool = False
    normed_features: bool = False
    normed_output: bool = False
    mask_token_id: int | None = None


class ResidualOnlyLayer(GatedDecoderLayer):
    """A layer behind the first one of a published net: it reads the stream alone, as in a Llama model."""

    def __init__(self, config: NetConfig, form: EagleForm):
        super().__init__(config.hidden, config.heads, config.mlp, None, form)
        self.norm_in = RMSNorm(config.hidden, form.eps)


class Eagle(Net):
    # The target's features, as `engine.forward.session.Session` takes them
    reads_features: bool | tuple[int, ...] = True
    window = WINDOW  # rows attended to
    form: EagleForm | None = None

    def __init__(self, config: NetConfig, embedding: Tensor, head: Tensor, form: EagleForm | None = None):
        """`config.own_vocab` is the size of the drafter's own vocabulary. Without a `form` it is the net that is trained here."""
        super().__init__(config, embedding, head)
        hidden, eps, heads = config.hidden, form.eps if form else EPS, config.heads
        self.form = form
        self.taps, width = (len(form.reads_features), form.target_hidden) if form else (FEATURES, config.feature_size)
        self.fuse = Linear(self.taps * width, hidden)
        self.norm_token, self.norm_feature, self.norm_out = (RMSNorm(hidden, eps) for _ in range(3))
        self.layer = GatedDecoderLayer(hidden, heads, config.mlp, 2 * hidden, form)
        self.next_layers = nn.ModuleList(ResidualOnlyLayer(config, form) for _ in range(config.layers - 1) if form)
        if form:
            self.rotary = form.rotary
            self.reads_features, self.window = form.reads_features, sys.maxsize
        else:
            self.rotary = Rotary.from_theta(hidden // heads, config.rope_theta)
        normed = self.taps if form and form.normed_features else 0
        self.norm_taps = nn.ModuleList(RMSNorm(width, eps) for _ in range(normed))
        self.norm_input = RMSNorm(self.taps * width, eps) if form and form.normed_input else None
        if self.mask_tokens:
            self.mask_hidden = nn.Parameter(torch.empty(1, 1, self.taps * width))  # in place of a mask token's features
        self.unembed = nn.Parameter(
            torch.empty(config.own_vocab, hidden) if form else self.head[: config.own_vocab].float().clone()
        )
        self.register_buffer("offsets", torch.zeros(config.own_vocab, dtype=torch.long))

    def set_draft_vocabulary_and_head_rows(self, token_ids: Tensor) -> None:
        """Make the drafter's vocabulary these target ids `[own_vocab]`, in ascending order."""
        token_ids = token_ids.to(self.offsets.device).sort().values
        self.offsets.copy_(token_ids - torch.arange(len(token_ids), device=token_ids.device))
        self.unembed.data.copy_(self.head[token_ids])

    @property
    def mask_tokens(self) -> list[int]:
        """Mask tokens behind the root, each of which guesses a depth more; none for a net that goes on step by step."""
        return (
            [self.form.mask_token_id] * (self.config.depth - 1)
            if self.form and self.form.mask_token_id is not None
            else []
        )

    @property
    def vocabulary(self) -> Tensor:
        """The target's ids `[own_vocab]` of the drafter's own tokens."""
        return self.offsets + torch.arange(len(self.offsets), device=self.offsets.device)

    def fuse_features(self, features: Tensor) -> Tensor:
        """`[..., H]` from the target's features `[..., layers + 1, H_t]`, of which the last is not read."""
        read = features[..., : self.taps, :]
        if self.norm_taps:
            parts = zip(self.norm_taps, read.unbind(-2), strict=True)
            read = torch.stack([norm(each) for norm, each in parts], -2)
        read = read.flatten(-2)
        return self.fuse(self.norm_input(read) if self.norm_input else read)

    def attention_inputs(self, tokens: Tensor, normed_features: Tensor) -> Tensor:
        """Attention's inputs `[..., 2H]` for `tokens [...]` and the normed features `[..., H]` behind the token before each."""
        return torch.cat([self.norm_token(self.embed_tokens(tokens)), normed_features], -1)

    def logits(self, out: Tensor) -> Tensor:
        """`[..., own_vocab]` from what `forward_entries` returns, `[..., H]`."""
        normed = out if self.form and self.form.normed_output else self.norm_out(out)
        return F.linear(normed, self.unembed)

    def forward_entries(
        self, tokens: Tensor, feature: Tensor, positions: Tensor, mask: Tensor, kv: Tensor, start_rows: int | Tensor
    ) -> Tensor:
        """What N entries of `tokens`, `feature [N, H]` and `positions` go on from, `[N, H]`. `mask` is additive.

        Every layer writes its rows into its own part of `kv [layers, 2, kv_heads, capacity, head_dim]`.
        """
        normed = self.norm_feature(feature)
        entering = self.attention_inputs(tokens, normed)[None]
        x = normed if self.form and self.form.normed_residual else feature
        rotary = self.rotary(positions[None])
        out = self.layer(x[None], entering, rotary, mask, kv[0], start_rows)
        for layer, own in zip(self.next_layers, kv[1:], strict=True):
            out = layer(out, layer.norm_in(out), rotary, mask, own, start_rows)
        out = out[0]
        return self.norm_out(out) if self.form and self.form.normed_output else out

    def build_compiled(self) -> CompiledEagle | None:
        """None for a net with a `form`: it drafts with tensors on every device."""
        return None if self.form else CompiledEagle(self)

    def open_session(self, capacity: int) -> "EagleSession | CompiledEagleSession":
        """A session with room for so many rows."""
        if self.mask_tokens:
            return MaskTokenSession(self, capacity + len(self.mask_tokens))
        return self.compiled.open_session(capacity) if self.compiled else EagleSession(self, capacity)

    def training_rollout_outputs(
        self, ids: Tensor, features: Tensor, steps: int, draft_anchors: Tensor | None = None
    ) -> list[Tensor]:
        """For training: the layer's outputs of every rollout step, from `ids [B, T]` and `features [B, T, 4, H]`.

        Step 0 is the text's own: output t `[B, T - 1, H]` reads true features up to place t and predicts the token behind place t + 1.
        Step s drafts s levels deep behind each of `draft_anchors [A]`, which ascend on a CPU; None takes all places. Its outputs
        `[B, n, H]` stand at the places anchors + s, as far as the text has them.
        """
        count, device = ids.shape[1] - 1, ids.device
        draft_anchors = torch.arange(count) if draft_anchors is None else draft_anchors
        tokens, feature, places = ids[:, 1:], self.fuse_features(features[:, :-1]), torch.arange(count, device=device)
        rotary = self.rotary(places + 1)
        outs, chain = [], []  # of the steps behind step 0 keys and values [B, heads, n, head_dim]
        scale = (self.config.hidden // self.config.heads) ** -0.5
        seen = places
        for step in range(steps):
            if step:
                n = int((draft_anchors + step < count).sum())
                seen = draft_anchors[:n].to(device)
                feature, places = outs[-1][:, seen] if step == 1 else outs[-1][:, :n], seen + step
            entering = self.attention_inputs(tokens[:, places], self.norm_feature(feature))
            queries, keys, values = self.layer.project_and_rotate_qkv(entering, tuple(each[places] for each in rotary))
            if not step:
                first_keys, first_values = keys, values
            else:
                chain.append((keys, values))
            hidden = torch.arange(count, device=device) > seen[:, None]
            scores = (queries @ first_keys.mT * scale).masked_fill(hidden, -torch.inf)
            own = [(queries * key[:, :, : len(seen)]).sum(-1, keepdim=True) * scale for key, _ in chain]
            weights = torch.cat([scores, *own], -1).softmax(-1)
            attended = weights[..., :count] @ first_values
            for i, (_, value) in enumerate(chain):
                attended = attended + weights[..., count + i, None] * value[:, :, : len(seen)]
            outs.append(self.layer.add_attention_and_mlp(feature, attended))
        return outs


class EagleSession:
    """One lane's rows, and a round's outputs. A drafted node goes on from the output above it, the text from features.

    The host asks `log_q_of_root` and `log_q_of_level`. What these are made of takes tensors alone: of n entries the `tokens [n]`,
    `positions [n]`, the `slots [n]` for their rows, and bool `seen [n, M]`, which of the first M rows each may see.
    """

    def __init__(self, net: Eagle, capacity: int):
        layer, self.net, self.device = net.layer, net, net.embedding.device
        self.sliding, self.vocabulary = net.form.sliding_window if net.form else 0, net.vocabulary
        layers = 1 + len(net.next_layers)
        self.cache = KVCache(layers, layer.kv_heads, layer.head_dim, capacity, torch.float32, self.device)
        self.stands = torch.zeros(capacity, dtype=torch.long, device=self.device)  # the position of every row

    def log_q_of_root(self, tokens: list[int], features: Tensor, first_position: int, first_row: int) -> Tensor:
        """Log-probabilities `[1, V]` behind the last of N entries, the first of which stands at `first_position`.

        The entries read the target's features `[N, 4, H]`. Here and in `log_q_of_level` their rows are written behind those that the
        cache has, and they see no row before `first_row`. Raises `ValueError` when the cache is full.
        """
        self.position, places = (
            first_position + len(tokens) - 1,
            list(range(first_position, first_position + len(tokens))),
        )
        entering = self.reserve_rows_for_entries(
            tokens, places, torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril(), first_row
        )
        return self.store_root_output_and_log_q(self.forward_text_entries(features, *entering)[..., -1:, :])

    def log_q_of_level(
        self, tokens: list[int], parent_outputs: list[int], positions: list[int], visible: Tensor, first_row: int
    ) -> Tensor:
        """Log-probabilities `[n, V]` behind n nodes of one depth. Raises `ValueError` when the cache is full.

        `parent_outputs` numbers the outputs of this round that they go on from; the root's is 0. `visible` bool `[n, M]` says which of
        the last M rows each may see.
        """
        entering = self.reserve_rows_for_entries(tokens, positions, visible, first_row)
        return self.log_q_of_drafted_entries(
            positions[0] - self.position, upload(parent_outputs, self.device), *entering
        )

    def reserve_rows_for_entries(
        self, tokens: list[int], positions: list[int], visible: Tensor, first_row: int
    ) -> tuple[Tensor, ...]:
        """Tokens, positions, slots and rows seen of entries that become the cache's last rows. Arguments are as in `log_q_of_level`."""
        rows, end = self.cache.rows, self.cache.rows + len(tokens)
        self.cache.refuse_overflow(len(tokens))
        self.cache.rows = end
        seen = (torch.arange(end) >= first_row).repeat(len(tokens), 1)
        seen[:, end - visible.shape[1] :] = visible
        numbers = upload([tokens, positions, list(range(rows, end))], self.device).unbind()
        return *numbers, upload(seen, self.device)

    def forward_text_entries(self, features: Tensor, *entries: Tensor) -> Tensor:
        """Outputs `[..., n, H]` behind entries of the text, which go on from the target's `features [n, layers + 1, H]`."""
        return self.forward_entries(self.net.fuse_features(features), *entries)

    def store_root_output_and_log_q(self, outs: Tensor) -> Tensor:
        """Log-probabilities `[1, V]` behind the root with these `outs [..., 1, H]`. A round begins."""
        self.outs = outs
        return self.log_q_of_outputs(outs)

    def log_q_of_drafted_entries(self, depth: int, parent_outputs: Tensor, *entries: Tensor) -> Tensor:
        """As `log_q_of_level`: log-probabilities behind nodes of this depth, which go on from the outputs `parent_outputs [n]`."""
        out = self.forward_entries(self.outs.index_select(0, parent_outputs), *entries)
        self.outs = torch.cat([self.outs, out])
        return self.log_q_of_outputs(out)

    def forward_entries(
        self, feature: Tensor, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Tensor
    ) -> Tensor:
        self.stands.index_copy_(0, slots, positions)
        rows = seen.shape[1]
        if self.sliding:
            seen = seen & (positions[:, None] - self.stands[:rows] < self.sliding)
        return self.net.forward_entries(
            tokens, feature, positions, additive_mask(seen, rows), self.cache.kv[:, :, :, :rows], slots
        )

    def log_q_of_outputs(self, out: Tensor) -> Tensor:
        """Log-probabilities `[n, V]` over the target's vocabulary from what `forward_entries` returns, `[n, H]`; -inf for tokens
        the net lacks.
        """
        return expand_log_q_to_full_vocab(self.net.logits(out).log_softmax(-1), self.vocabulary, self.net.config.vocab)


class MaskTokenSession(EagleSession):
    """P-EAGLE's: mask tokens behind the root's entry answer the deeper levels in the same forward. Their rows are not kept."""

    def log_q_of_root(self, tokens: list[int], features: Tensor, first_position: int, first_row: int) -> Tensor:
        net, masks, count, rows = self.net, self.net.mask_tokens, len(tokens), self.cache.rows
        places = list(range(first_position, first_position + count + len(masks)))
        causal = torch.ones(len(places), len(places), dtype=torch.bool).tril()
        entering = self.reserve_rows_for_entries([*tokens, *masks], places, causal, first_row)
        masked = net.mask_hidden.view(1, net.taps, -1).expand(len(masks), -1, -1)
        out = self.forward_text_entries(torch.cat([features[:, : net.taps], masked]), *entering)
        self.cache.rows = rows + count
        self.levels = self.log_q_of_outputs(out[count - 1 :])
        return self.levels[:1]

    def log_q_at_depths(self, depths: list[int]) -> Tensor | None:
        """Log-probabilities `[n, V]` behind nodes of these depths; None where one is deeper than the net guesses."""
        return select_rows(self.levels, depths) if max(depths) < len(self.levels) else None
