"""DSpark drafters as DeepSpec publishes them: random checkpoints beside a plain computation of the published network."""

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.nets import open_lazy_nets
from engine.nets.dspark import DSpark
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT
from helpers.pairs import tiny_llama
from helpers.published.dflash import (
    BLOCK,
    HIDDEN,
    LAYER,
    LAYERS,
    MASK,
    OWN,
    VOCAB,
    pair_of,
    race_keeps_the_text,
    reference,
    tensors,
)
from helpers.published.files import write

RANK, PLACES = 12, (2, 4, 6)
CONFIG = {
    **LAYER,
    "architectures": ["Qwen3DSparkModel"],
    "block_size": BLOCK,
    "num_target_layers": LAYERS,
    "mask_token_id": MASK,
    "target_layer_ids": [1, 3, 5],
    "num_anchors": 512,
    "markov_rank": RANK,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "tie_word_embeddings": False,
}
BARE = CONFIG | {"enable_confidence_head": False}


def weights(confident: int = HIDDEN + RANK, whole: bool = True) -> dict[str, torch.Tensor]:
    """With `whole`, an embedding and a head as DeepSpec saves them; here they differ from the target's, so that it shows."""
    draw = torch.Generator().manual_seed(8)
    found = tensors()
    found |= {f"markov_head.markov_w{n}.weight": torch.randn(VOCAB, RANK, generator=draw) for n in (1, 2)}
    if whole:
        found |= {
            f"{name}.weight": torch.randn(VOCAB, HIDDEN, generator=draw) / 4 for name in ("embed_tokens", "lm_head")
        }
    if confident:
        found |= {"confidence_head.proj.weight": torch.ones(1, confident), "confidence_head.proj.bias": torch.ones(1)}
    return found


OF_SPECULATORS = {
    "architectures": ["DSparkDraftModel"],
    "speculators_model_type": "dspark",
    "transformer_layer_config": LAYER,
    "draft_vocab_size": OWN,
    "block_size": BLOCK,
    "mask_token_id": MASK,
    "aux_hidden_state_layer_ids": [*PLACES],
    "markov_rank": RANK,
}


def narrowed(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights with guesses among `OWN` tokens alone."""
    rows = {name: found[name][:OWN].clone() for name in ("lm_head.weight", "markov_head.markov_w2.weight")}
    return found | rows | {name: each for name, each in tensors(whole=True).items() if name in ("d2t", "t2d")}


CASES = {
    "as published": (CONFIG, weights()),
    "a confidence head without the token": (CONFIG | {"confidence_head_with_markov": False}, weights(HIDDEN)),
    "without a confidence head, on the target's embedding": (BARE, weights(0, whole=False)),
    "of speculators, with its own vocabulary": (OF_SPECULATORS, narrowed(weights())),
}


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_a_node_is_told_the_token_before_its_guess(case, model, tmp_path):
    """Two branches of a depth get two guesses. The anchor's own slot guesses, too, so a block of five reaches five levels."""
    config, found = CASES[case]
    write(tmp_path / "any-name", config, found)
    pair = pair_of(tmp_path, model)
    assert list(pair.learned) == ["dspark"] and isinstance(pair.net("dspark"), DSpark)
    pair.net("dspark").compiled = None
    drafter, root = DRAFTERS["dspark"](pair, 64), 6
    assert drafter.reads_features == PLACES
    drafter.begin(TEXT[: root + 1], Target(pair.target, 64, PLACES).prefill_and_return_features(TEXT[:root]))
    tree = DraftTree.from_root_token(TEXT[root])
    for token in (9, 3, 200, 31, 5):
        tree.add(len(tree) - 1, token, 1.0, 1.0)
    tree.add(1, 77, 1.0, 1.0)
    tokens, depths = torch.tensor(tree.tokens), [0, 1, 2, 3, 4, 2]
    bias = found["markov_head.markov_w1.weight"][tokens] @ found["markov_head.markov_w2.weight"].T
    nodes = [0, 1, 2, 3, 4, 6]
    slots = reference(found, model, TEXT[:root], TEXT[root], PLACES)
    expected = (slots[depths] + bias[nodes]).softmax(-1)
    ids = torch.arange(expected.shape[1]) + found.get("d2t", 0)
    guessed = drafter.log_q(tree, nodes).exp()
    assert torch.allclose(guessed[:, ids], expected, atol=1e-4, rtol=0)
    assert torch.allclose(guessed.sum(-1), torch.ones(len(nodes)), atol=1e-4)
    assert not torch.allclose(expected[2], expected[5], atol=0.01)
    assert drafter.log_q(tree, [5]) is None and drafter.draft_forward_count == 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("case", ["as published", "of speculators, with its own vocabulary"])
def test_trees_of_a_published_drafter_write_plain_decodings_tokens(case, temperature, model, tmp_path):
    write(tmp_path / "published", *CASES[case])
    race_keeps_the_text(pair_of(tmp_path, model), "dspark", ("best_first", "chain", "beam", "talon"), temperature)


@pytest.mark.parametrize(
    ("config", "found", "sentence"),
    [
        (CONFIG | {"markov_rank": 0}, {}, "markov_rank as a whole number from 1 on, got 0.* it is DFlash"),
        (CONFIG | {"markov_head_type": "rnn"}, {}, "Markov head of the type 'rnn'. Only 'vanilla' is computed"),
        (CONFIG | {"mask_token_id": None}, {}, "mask_token_id between 0 and 255, got None"),
        (CONFIG | {"target_layer_ids": [-1, 3]}, {}, r"must ascend between 0 and 6 for this target, got \[-1, 3\]"),
        (CONFIG | {"model_type": "gemma4_text"}, {}, "of the type 'gemma4_text'"),
        (CONFIG | {"a_key_of_next_year": 0}, {}, "sets a_key_of_next_year to 0 in config.json"),
        (CONFIG | {"is_causal": True}, {}, "sets is_causal to True in config.json"),
        (OF_SPECULATORS | {"correction_num_layers": 1}, {}, "sets correction_num_layers to 1 in config.json"),
        (
            OF_SPECULATORS | {"architectures": ["XpressDraftModel"]},
            {},
            "is a XpressDraftModel, whose network is another one. Only DSparkDraftModel and",
        ),
        (
            CONFIG | {"markov_rank": 8},
            weights(),
            r"confidence_head\.proj\.weight in the shape \[1, 76\].* need \[1, 72\]",
        ),
        (BARE, weights(), r"holds the tensor confidence_head\.proj\.bias, which this format does not have"),
        (CONFIG, tensors(), r"lacks the tensor markov_head\.markov_w1\.weight"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(config, found, sentence, model, tmp_path):
    write(tmp_path / "drafter", config, found)
    with pytest.raises(ValueError, match=sentence):
        open_lazy_nets(tmp_path, model)["dspark"]
