"""Medusa heads as others publish them: random checkpoints in both forms, beside a plain computation of the published heads.

Probabilities are compared at 1e-4 before the weights are rounded to eight bits. Losslessness is token equality.
"""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from engine.drafters import DRAFTERS
from engine.nets import load_nets
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_pair

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


def write(folder, config: dict, found: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(found, folder / "model.safetensors")


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
    pair = replace(pair, learned=load_nets(tmp_path, pair.target.model))
    net = pair.net("medusa")
    assert list(pair.learned) == ["medusa"] and net.config.depth == HEADS
    hidden = pair.target.model.model(torch.tensor([TEXT[:5]])).last_hidden_state[0, -1].detach()
    expected = []
    for k in range(HEADS):
        block, offset, unembed = (found.get(name.format(k)) for name in names)
        inner = hidden @ block.T + (0 if offset is None else offset)
        expected.append(((hidden + inner * torch.sigmoid(inner)) @ unembed.T).log_softmax(-1))
    net.compiled = None
    drafter, tree = DRAFTERS["medusa"](pair, 64), DraftTree.rooted(TEXT[5])
    drafter.begin(TEXT[:6], Target(pair.target, 64, drafter.reads_features).prefill(TEXT[:5]))
    for token in TEXT[6:9]:
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(HEADS)])
    assert torch.allclose(guessed.exp(), torch.stack(expected).exp(), atol=1e-4, rtol=0)
    assert drafter.log_q(tree, [HEADS]) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees_of_published_heads_write_plain_decodings_tokens(temperature, tmp_path):
    write(tmp_path / "published", OFFICIAL, heads(OFFICIAL_NAMES))
    pair = tiny_pair()
    pair = replace(pair, learned=load_nets(tmp_path, pair.target.model))
    race = Race(
        pair, Settings("Story: Once", ("vanilla", "medusa"), temperature=temperature, seed=5, max_new_tokens=16)
    )
    list(race.run())
    assert race.result()["identical"] is True
    assert max(len(step.tokens) for step in race.lanes[1].trace.steps) > 3


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({**OFFICIAL, "medusa_num_layers": 2}, "has 2 blocks in each Medusa head"),
        ({**OFFICIAL, "hidden_size": 32}, "a target of 256 tokens and hidden size 32, this one has 256 and 64"),
        ({**VLLM, "truncated_vocab_size": 100}, "guesses only 100 tokens of 256"),
        ({**VLLM, "original_lm_head": True}, "uses original_lm_head"),
        ({"model_type": "llama"}, "holds no drafter's sizes: 'kind'"),
        ([], "holds no drafter's sizes: it holds no names and values"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_before_weights_are_read(config, sentence, tmp_path):
    write(tmp_path / "drafter", config, {})
    with pytest.raises(ValueError, match=sentence):
        load_nets(tmp_path, tiny_pair().target.model)


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
    write(tmp_path / "drafter", config, found)
    nets = load_nets(tmp_path, tiny_pair().target.model)
    with pytest.raises(ValueError, match=sentence):
        nets["medusa"]
