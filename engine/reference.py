"""Tree-based speculative decoding in plain PyTorch: a Llama, a draft tree, its mask, token match and the loop. Knows no other file.

Read this first. The engine does the same, faster and with every published part; `tests/core/test_reference.py` holds it equal to this.
`python engine/reference.py "Story: The fox"` writes a text with the small embedded pair, a line for every target forward.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

# Of `logits [V]` and a position the numbers `[V]` whose largest is drawn there: with a position's own noise, as in `engine.sampling`
SamplingScores = Callable[[torch.Tensor, int], torch.Tensor]
DEPTH, WIDTH, RANKED = (
    4,
    3,
    4,
)  # of a tree; so many favourites behind a node are guesses, and a score is a share among them
PAIR = Path(__file__).parents[1] / "assets" / "models" / "small"


class Llama:
    """A checkpoint in float32, and its KV cache: for each layer `[2, kv_heads, rows, head_dim]`, keys and values."""

    def __init__(self, checkpoint_folder: Path):
        self.config = config = json.loads((checkpoint_folder / "config.json").read_text("utf-8"))
        stored = load_file(checkpoint_folder / "model.safetensors").items()
        self.weights = {name.removesuffix(".weight"): weight.float() for name, weight in stored}
        self.embedding = self.weights["model.embed_tokens"]
        self.norm = partial(rms_norm, normalized_shape=[config["hidden_size"]], eps=config["rms_norm_eps"])
        self.head_dim = config["head_dim"]
        self.frequencies = config["rope_parameters"]["rope_theta"] ** -torch.arange(0, 1, 2 / self.head_dim)
        self.cache = [torch.zeros(2, config["num_key_value_heads"], 0, self.head_dim)] * config["num_hidden_layers"]

    @property
    def cached_rows(self) -> int:
        return self.cache[0].shape[2]

    def keep_cache_rows(self, rows: list[int]) -> None:
        self.cache = [layer[:, :, rows] for layer in self.cache]

    def forward(self, tokens: list[int], positions: list[int], visible: torch.Tensor) -> torch.Tensor:
        """Logits `[n, V]` behind n tokens, whose rows join the cache. Token i attends to the rows of bool `visible [n, rows + n]`."""
        turns = torch.outer(torch.tensor(positions), self.frequencies).repeat(1, 2)
        hidden = self.embedding[tokens]
        for layer, past in enumerate(self.cache):
            prefix = f"model.layers.{layer}."
            w = {name.removeprefix(prefix): each for name, each in self.weights.items() if name.startswith(prefix)}
            x = self.norm(hidden, weight=w["input_layernorm"])
            heads = (linear(x, w[f"self_attn.{name}_proj"]).unflatten(1, (-1, self.head_dim)) for name in "qkv")
            q, k, v = (each.transpose(0, 1) for each in heads)
            self.cache[layer] = torch.cat([past, torch.stack([apply_rope(k, turns), v])], dim=2)
            keys, values = self.cache[layer].repeat_interleave(len(q) // len(k), dim=1)
            mixed = scaled_dot_product_attention(apply_rope(q, turns), keys, values, attn_mask=visible)
            hidden = hidden + linear(mixed.transpose(0, 1).flatten(1), w["self_attn.o_proj"])
            x = self.norm(hidden, weight=w["post_attention_layernorm"])
            gates = silu(linear(x, w["mlp.gate_proj"]))
            hidden = hidden + linear(gates * linear(x, w["mlp.up_proj"]), w["mlp.down_proj"])
        return linear(self.norm(hidden, weight=self.weights["model.norm"]), self.weights.get("lm_head", self.embedding))

    def forward_next_tokens_causally(self, tokens: list[int]) -> torch.Tensor:
        """Logits `[n, V]` behind n tokens that go on from the cache, one after another."""
        causal = torch.ones(len(tokens), self.cached_rows + len(tokens)).tril(self.cached_rows).bool()
        return self.forward(tokens, list(range(self.cached_rows, self.cached_rows + len(tokens))), causal)


def apply_rope(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary positions of `x [heads, n, head_dim]`, by the angles `angles [n, head_dim]`."""
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


class Tree:
    """Node i guesses that `tokens[i]` follows node `parents[i]`; `scores[i]` is the chance of its whole path. Node 0 is the root."""

    def __init__(self, root_token: int):
        self.tokens, self.parents, self.depths, self.scores = [root_token], [-1], [0], [1.0]

    def add(self, score: float, parent: int, token: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.scores.append(score)
        return len(self.tokens) - 1

    def attention_mask(self, cached_rows: int) -> torch.Tensor:
        """bool `[N, cached_rows + N]`: a node attends to the text, whose rows stand first, to its ancestors and to itself."""
        mask = torch.eye(len(self.tokens), dtype=torch.bool)
        for node, parent in enumerate(self.parents[1:], 1):
            mask[node] |= mask[parent]
        return torch.cat([torch.ones(len(mask), cached_rows, dtype=torch.bool), mask], dim=1)


def grow_beam_tree(draft: Llama, unread_tokens: list[int], sampling_scores: SamplingScores) -> Tree:
    """A beam: each of `DEPTH` levels keeps the `WIDTH` likeliest paths behind the text, whose end the draft has not read yet."""
    logits, tree, level = draft.forward_next_tokens_causally(unread_tokens)[-1:], Tree(unread_tokens[-1]), [0]
    text = draft.cached_rows
    for place in range(text, text + DEPTH):
        if place > text:
            tokens = [tree.tokens[node] for node in level]
            logits = draft.forward(tokens, [place - 1] * len(level), tree.attention_mask(text - 1)[level])
        paths = list[tuple[float, int, int]]()
        for node, row in zip(level, logits, strict=True):
            favourites = sampling_scores(row, place).topk(RANKED)
            scores = tree.scores[node] * favourites.values.softmax(-1)
            paths += zip(scores.tolist(), [node] * RANKED, favourites.indices.tolist(), strict=True)
        level = [tree.add(*path) for path in sorted(paths, reverse=True)[:WIDTH]]
    draft.keep_cache_rows(list(range(text)))
    return tree


def accept_by_token_match(
    tree: Tree, logits: torch.Tensor, position: int, sampling_scores: SamplingScores
) -> tuple[list[int], int]:
    """Token match: the accepted path and the token behind it, from `logits [N, V]` behind every node. The root is at `position`.

    The target draws its own token behind each node, and a guess that is this token survives. So the text is plain decoding's.
    """
    children = {guess: node for node, guess in enumerate(zip(tree.parents, tree.tokens, strict=True))}
    path, node = list[int](), 0
    while (guess := (node, int(sampling_scores(logits[node], position + 1 + len(path)).argmax()))) in children:
        path.append(node := children[guess])
    return path, guess[1]


def decode(
    target: Llama, draft: Llama, prompt: list[int], max_new_tokens: int, sampling_scores: SamplingScores | None = None
) -> Iterator[list[int]]:
    """Up to `max_new_tokens` tokens, a burst for every target forward, up to the model's stop token."""
    sampling_scores, stop = sampling_scores or (lambda logits, position: logits), target.config["eos_token_id"]
    text, end = list(prompt), len(prompt) + max_new_tokens
    target.forward_next_tokens_causally(text[:-1])
    while len(text) < end and stop not in text[len(prompt) :]:
        root = target.cached_rows
        tree = grow_beam_tree(draft, text[draft.cached_rows :], sampling_scores)
        logits = target.forward(tree.tokens, [root + depth for depth in tree.depths], tree.attention_mask(root))
        path, bonus = accept_by_token_match(tree, logits, root, sampling_scores)
        target.keep_cache_rows([*range(root + 1), *(root + node for node in path)])
        burst = [*(tree.tokens[node] for node in path), bonus][: end - len(text)]
        text += (burst := burst[: burst.index(stop) + 1] if stop in burst else burst)
        yield burst


if __name__ == "__main__":
    tokenizer = Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    ids = tokenizer.encode(" ".join(sys.argv[1:]) or "Story: Once upon a time").ids
    for burst in decode(Llama(PAIR / "target"), Llama(PAIR / "draft"), ids, 64):
        print(repr(tokenizer.decode(burst)))
