"""Blocks of z-lab whose layers have a window or are causal, beside a plain computation of the published network.

Probabilities are compared at 1e-4, losslessness is token equality. Texts are longer than the window.
"""

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.models.export import load_trained_drafter_config_and_weights
from engine.models.pairs import Pair
from engine.nets import open_lazy_nets
from engine.nets.dflash import DFlash
from engine.target import Target
from engine.tree import DraftTree
from helpers.decoding import lane_rounds, rounds_compared
from helpers.learned import TEXT
from helpers.pairs import PROMPT, tiny_llama
from helpers.published.dflash import BLOCK, LAYER, LAYERS, MASK, OWN, pair_of, race_keeps_the_text, reference, tensors
from helpers.published.files import write

FULL, SLIDING = "full_attention", "sliding_attention"
PLACES, WINDOW = (2, 4, 6), 4
Z_LAB = {
    **LAYER,
    "architectures": ["DFlashDraftModel"],
    "block_size": BLOCK,
    "num_target_layers": LAYERS,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 3, 5]},
    "layer_types": [SLIDING, FULL],
    "sliding_window": WINDOW,
    "use_sliding_window": True,
}
# The config's change, and the two layers' windows and whether each is causal
CASES = {
    "a window, and nothing said": ({}, ((WINDOW, True), (0, False))),
    "two windows, and nothing said": ({"layer_types": [SLIDING, SLIDING]}, ((WINDOW, True), (WINDOW, True))),
    "windows ahead as well": ({"layer_types": [FULL, SLIDING], "is_causal": False}, ((0, False), (WINDOW, False))),
    "causal, full attention too": ({"is_causal": True}, ((WINDOW, True), (0, True))),
    "causal without a window": ({"layer_types": [FULL, FULL], "is_causal": True}, ((0, True), (0, True))),
    "a window as wide as the text": ({"sliding_window": 4096}, ((4096, True), (0, False))),
}


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0, layers=LAYERS)


def pair_with(change: dict, folder, model):
    write(folder / "published", {**Z_LAB, **change}, tensors())
    return pair_of(folder, model)


def seen(context: int, window: int, causal: bool) -> torch.Tensor:
    """Which of the context and the block every slot sees, `[BLOCK, context + BLOCK]`, place by place."""
    found = torch.zeros(BLOCK, context + BLOCK, dtype=torch.bool)
    for slot in range(BLOCK):
        for place in range(context + BLOCK):
            own = context + slot
            found[slot, place] = (place <= own or not causal) and (not window or abs(own - place) < window)
    return found


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_a_block_with_windows_guesses_as_the_published_network(case, model, tmp_path):
    """Round after round, the first behind a text of eight tokens."""
    change, layers = CASES[case]
    pair = pair_with(change, tmp_path, model)
    assert isinstance(pair.net("dflash"), DFlash) and pair.net("dflash").compiled is None
    drafter, root = DRAFTERS["dflash"](pair, 64), 8
    target = Target(pair.target, 64, drafter.reads_features)
    drafter.begin(TEXT[: root + 1], target.prefill_and_return_features(TEXT[:root]))
    for accepted in (2, 0, 1):
        tree = DraftTree.from_root_token(TEXT[root])
        for token in TEXT[root + 1 : root + 4]:
            tree.add(len(tree) - 1, token, 1.0, 1.0)
        guessed = torch.cat([drafter.log_q(tree, [level]) for level in range(4)])
        seen_in = tuple(seen(root, *each) for each in layers)
        expected = reference(tensors(), model, TEXT[:root], TEXT[root], PLACES, seen_in)[1:].log_softmax(-1)
        assert torch.allclose(guessed.exp(), expected.exp(), atol=1e-4, rtol=0), root
        _, features = target.verify(tree)
        path = list(range(1, accepted + 1))
        target.commit(path)
        drafter.commit(tree, path, TEXT[root + accepted + 1], features)
        root += accepted + 1


@torch.inference_mode()
def test_what_a_mask_hides_changes_guesses(model):
    """Or the comparison above would pass without windows."""
    whole, *others = (
        reference(tensors(), model, TEXT[:9], TEXT[9], PLACES, tuple(seen(9, *each) for each in layers)).softmax(-1)
        for layers in [((0, False), (0, False)), *(CASES[case][1] for case in list(CASES)[:5])]
    )
    assert min((whole - each)[1:].abs().max() for each in others) > 1e-2


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees_of_a_block_with_windows_write_plain_decodings_tokens(temperature, model, tmp_path):
    race_keeps_the_text(pair_with({}, tmp_path, model), "dflash", ("best_first", "chain"), temperature)


@pytest.mark.parametrize("case", list(CASES)[:4])
def test_a_device_hides_what_the_host_hides(case, model, tmp_path):
    pair = pair_with(CASES[case][0], tmp_path, model)
    for compared in rounds_compared(*lane_rounds(pair, "dflash", PROMPT, 16)):
        compared.check()


# ---- refusals


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sliding_window": None}, "layers with sliding_attention, sliding_window None and use_sliding_window True"),
        ({"sliding_window": 0}, "sliding_window 0 .* a whole number from 1 on"),
        ({"use_sliding_window": False}, "use_sliding_window False.* a window that is in use"),
        (
            {"layer_types": [SLIDING, "chunked_attention"]},
            "layers with chunked_attention. Only full_attention and sliding",
        ),
        ({"layer_types": [SLIDING]}, "describes no layer that can be computed: .*layer_types"),
        ({"is_causal": "no"}, "is_causal as true or false, got 'no'"),
        (
            {"dflash_config": {**Z_LAB["dflash_config"], "causal": False}},
            "sets causal to False in dflash_config, and engines differ",
        ),
    ],
)
def test_a_window_that_says_too_little_is_refused(change, sentence, model, tmp_path):
    write(tmp_path / "drafter", {**Z_LAB, **change}, {})
    with pytest.raises(ValueError, match=sentence):
        open_lazy_nets(tmp_path, model)


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_windows_in_the_form_of_speculators_are_refused(kind, model, tmp_path):
    """Its own training and vLLM hide other rows of the context, and other slots."""
    config = {
        "speculators_model_type": kind,
        "transformer_layer_config": {**LAYER, "layer_types": [SLIDING, FULL], "sliding_window": WINDOW},
        "draft_vocab_size": OWN,
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "aux_hidden_state_layer_ids": [*PLACES],
    }
    write(tmp_path / "drafter", config, {})
    with pytest.raises(ValueError, match="engines differ in what a window hides from a block in this form"):
        open_lazy_nets(tmp_path, model)


def test_a_block_with_windows_is_not_exported_as_one_without(tmp_path):
    write(tmp_path / "dflash", Z_LAB, tensors())
    with pytest.raises(ValueError, match="holds no dflash drafter that was trained here"):
        load_trained_drafter_config_and_weights(
            Pair("own", "a small one", "nowhere", drafters_folder=str(tmp_path)), "dflash"
        )
