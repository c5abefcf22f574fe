"""Medusa heads as others publish them: random checkpoints in both forms, beside a plain computation of the published heads.

Probabilities are compared at 1e-4 before the weights are rounded to eight bits. Losslessness is token equality.
"""

from dataclasses import replace

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.nets import open_lazy_nets
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_pair
from helpers.published.files import write

HIDDEN, VOCAB, HEADS = 64, 256, 3
OFFICIAL = {
    "base_model_name_or_path": "someone/a-target",
    "medusa_num_heads": 5,
    "medusa_num_layers": 1,
}  # it has three
VLLM = {
    "architectures": ["MedusaModel"],
    "model_type": "medusa",
    "hidden_size": HIDDEN,
    "vocab_size": VOCAB,
    "num_heads": HEADS,
    "num_hidden_layers": 1,
    "truncated_vocab_size": VOCAB,
}
OFFICIAL_NAMES = ("{}.0.linear.weight", "{}.0.linear.bias", "{}.1.weight")
VLLM_NAMES = ("blocks.{}.layers.0.weight", "blocks.{}.layers.0.bias", "lm_heads.{}.weight")


def heads(names: tuple[str, str, str], bias: bool = True) -> dict[str, torch.Tensor]:
    draw, found = torch.Generator().manual_seed(4), {}
    for k in range(HEADS):
        for name, shape in zip(names, ((HIDDEN, HIDDEN), (HIDDEN,), (VOCAB, HIDDEN)), strict=True):
            if bias or len(shape) > 1:
                found[name.format(k)] = 0.3 * torch.randn(shape, generator=draw)
    return found


def stacked(repeated: bool) -> dict[str, torch.Tensor]:
    """Official heads of three blocks; with `repeated` a file names only the first of each head, which all three are."""
    draw, found = torch.Generator().manual_seed(8), {}
    for k in range(HEADS):
        for j in range(1 if repeated else 3):
            found[f"{k}.{j}.linear.weight"] = 0.1 * torch.randn(HIDDEN, HIDDEN, generator=draw)
            found[f"{k}.{j}.linear.bias"] = 0.3 * torch.randn(HIDDEN, generator=draw)
        found[f"{k}.3.weight"] = 0.1 * torch.randn(VOCAB, HIDDEN, generator=draw)
    return found


def truncated(whole: bool) -> dict[str, torch.Tensor]:
    """vLLM's heads of two blocks over 100 tokens; with `whole` their projections have a row for every token of the target."""
    draw = torch.Generator().manual_seed(9)
    found = {"token_map": torch.randperm(VOCAB, generator=draw)[:100]}
    for k in range(HEADS):
        for j in range(2):
            found[f"blocks.{k}.layers.{j}.weight"] = 0.1 * torch.randn(HIDDEN, HIDDEN, generator=draw)
        rows = VOCAB if whole else 100
        found[f"lm_heads.{k}.weight"] = 0.1 * torch.randn(rows, HIDDEN, generator=draw)
    return found


STACKED = {**OFFICIAL, "medusa_num_layers": 3}
TRUNCATED = {**VLLM, "num_hidden_layers": 2, "truncated_vocab_size": 100}
OTHERS = {
    "three blocks": (STACKED, stacked(repeated=False)),
    "three blocks that are one": (STACKED, stacked(repeated=True)),
    "100 tokens": (TRUNCATED, truncated(whole=False)),
    "100 tokens of whole projections": (TRUNCATED, truncated(whole=True)),
}


def plainly(found: dict[str, torch.Tensor], hidden: torch.Tensor, k: int) -> torch.Tensor:
    """Probabilities `[VOCAB]` of head k from `hidden [HIDDEN]`, by the names in the file."""
    official = "0.0.linear.weight" in found
    for j in range(3 if official else 2):
        own = j if f"{k}.{j}.linear.weight" in found else 0
        name = f"{k}.{own}.linear" if official else f"blocks.{k}.layers.{j}"
        inner = found[f"{name}.weight"] @ hidden + found.get(f"{name}.bias", torch.zeros(HIDDEN))
        hidden = hidden + inner * torch.sigmoid(inner)
    if official:
        return (found[f"{k}.3.weight"] @ hidden).softmax(-1)
    unembed, chances = found[f"lm_heads.{k}.weight"], torch.zeros(VOCAB)
    rows = unembed[found["token_map"]] if len(unembed) == VOCAB else unembed
    chances[found["token_map"]] = (rows @ hidden).softmax(-1)
    return chances


@pytest.mark.parametrize("case", OTHERS)
def test_heads_of_several_blocks_and_of_fewer_tokens_guess_as_published(case, tmp_path):
    config, found = OTHERS[case]
    write(tmp_path / "any-name", config, found)
    pair = tiny_pair()
    pair = replace(pair, learned=open_lazy_nets(tmp_path, pair.target.model))
    hidden = pair.target.model.model(torch.tensor([TEXT[:5]])).last_hidden_state[0, -1].detach()
    drafter, tree = DRAFTERS["medusa"](pair, 64), DraftTree.from_root_token(TEXT[5])
    drafter.begin(TEXT[:6], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(TEXT[:5]))
    for token in TEXT[6:9]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(HEADS)]).exp()
    expected = torch.stack([plainly(found, hidden, k) for k in range(HEADS)])
    assert torch.allclose(guessed, expected, atol=1e-4, rtol=0) and torch.equal(guessed > 0, expected > 0)
    assert expected.max() < 0.9  # or all but one token would agree by themselves
    race = Race(pair, Settings("Story: Once", ("vanilla", "medusa"), temperature=0.8, seed=5, max_new_tokens=16))
    list(race.run())
    assert race.result()["identical"] is True


CASES = {
    "official": (OFFICIAL, OFFICIAL_NAMES, True),
    "vLLM": (VLLM, VLLM_NAMES, False),
    "vLLM with medusa_fc_bias": ({**VLLM, "medusa_fc_bias": True}, VLLM_NAMES, True),
}


@pytest.mark.parametrize("case", CASES)
def test_published_heads_guess_as_published(case, tmp_path):
    """Head k guesses k + 2 places behind the hidden state, which is k + 1 behind the root."""
    config, names, bias = CASES[case]
    found = heads(names, bias)
    write(tmp_path / "any-name", config, found)
    pair = tiny_pair()
    pair = replace(pair, learned=open_lazy_nets(tmp_path, pair.target.model))
    net = pair.net("medusa")
    assert list(pair.learned) == ["medusa"] and net.config.depth == HEADS
    hidden = pair.target.model.model(torch.tensor([TEXT[:5]])).last_hidden_state[0, -1].detach()
    expected = []
    for k in range(HEADS):
        block, offset, unembed = (found.get(name.format(k)) for name in names)
        inner = hidden @ block.T + (0 if offset is None else offset)
        expected.append(((hidden + inner * torch.sigmoid(inner)) @ unembed.T).log_softmax(-1))
    net.compiled = None
    drafter, tree = DRAFTERS["medusa"](pair, 64), DraftTree.from_root_token(TEXT[5])
    drafter.begin(TEXT[:6], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(TEXT[:5]))
    for token in TEXT[6:9]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(HEADS)])
    assert torch.allclose(guessed.exp(), torch.stack(expected).exp(), atol=1e-4, rtol=0)
    assert drafter.log_q(tree, [HEADS]) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees_of_published_heads_write_plain_decodings_tokens(temperature, tmp_path):
    write(tmp_path / "published", OFFICIAL, heads(OFFICIAL_NAMES))
    pair = tiny_pair()
    pair = replace(pair, learned=open_lazy_nets(tmp_path, pair.target.model))
    race = Race(
        pair, Settings("Story: Once", ("vanilla", "medusa"), temperature=temperature, seed=5, max_new_tokens=16)
    )
    list(race.run())
    assert race.result()["identical"] is True
    assert max(len(step.tokens) for step in race.lanes[1].trace.steps) > 3


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({**OFFICIAL, "medusa_num_layers": 0}, "medusa_num_layers between 1 and 64, got 0"),
        ({**OFFICIAL, "hidden_size": 32}, "a target of 256 tokens and hidden size 32, this one has 256 and 64"),
        ({**VLLM, "truncated_vocab_size": 300}, "truncated_vocab_size between 1 and 256, got 300"),
        ({**VLLM, "logit_scale": 0.5}, r"scales its logits by 0\.5 \(logit_scale\)"),
        ({**VLLM, "original_lm_head": True}, "uses original_lm_head"),
        ({**VLLM, "logit_softcap": 30.0}, r"sets logit_softcap to 30\.0 in config.json"),
        ({**OFFICIAL, "a_key_of_next_year": 0}, "sets a_key_of_next_year to 0 in config.json, .* delete it there"),
        ({"model_type": "llama"}, "holds no drafter's sizes: 'kind'"),
        ([], "holds no drafter's sizes: it holds no names and values"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_before_weights_are_read(config, sentence, tmp_path):
    write(tmp_path / "drafter", config, {})
    with pytest.raises(ValueError, match=sentence):
        open_lazy_nets(tmp_path, tiny_pair().target.model)


OTHER_HEADS = {name: each for name, each in heads(OFFICIAL_NAMES).items() if not name.startswith("1.")}


@pytest.mark.parametrize(
    ("config", "found", "sentence"),
    [
        (OFFICIAL, OTHER_HEADS, r"lacks the tensor 1\.0\.linear\.bias"),
        (
            OFFICIAL,
            heads(OFFICIAL_NAMES) | {"0.1.linear.weight": torch.zeros(1)},
            r"holds the tensor 0\.1\.linear\.weight",
        ),
        ({**OFFICIAL, "medusa_num_layers": 2}, heads(OFFICIAL_NAMES), r"holds the tensor 0\.1\.weight"),
        (STACKED, stacked(False) | {"1.2.linear.bias": None}, r"lacks the tensor 1\.2\.linear\.bias"),
        (TRUNCATED, truncated(False) | {"token_map": None}, "lacks the tensor token_map"),
        (TRUNCATED, truncated(False) | {"token_map": torch.rand(100)}, r"holds token_map as torch\.float32"),
        (TRUNCATED, truncated(False) | {"token_map": torch.arange(157, 257)}, "100 different ids from 157 to 256"),
        (TRUNCATED, truncated(False) | {"token_map": torch.arange(100) % 99}, "99 different ids from 0 to 98"),
        (OFFICIAL, {"1.1.weight": torch.zeros(9, 9)}, "holds no Medusa heads among its tensors 1"),
        (OFFICIAL, {"fc.weight": torch.zeros(9, 9)}, r"holds no Medusa heads among its tensors fc\.weight"),
        (VLLM, heads(VLLM_NAMES) | {"token_map": torch.zeros(VOCAB)}, "holds the tensor token_map"),
        (
            VLLM,
            heads(VLLM_NAMES) | {"lm_heads.2.weight": torch.zeros(100, HIDDEN)},
            r"lm_heads\.2\.weight in the shape \[100, 64\].* need \[256, 64\]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(config, found, sentence, tmp_path):
    write(tmp_path / "drafter", config, {name: each for name, each in found.items() if each is not None})
    nets = open_lazy_nets(tmp_path, tiny_pair().target.model)
    with pytest.raises(ValueError, match=sentence):
        nets["medusa"]
