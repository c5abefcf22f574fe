"""Targets in 8 and 4 bits, on small random checkpoints: kept so, near the plain ones, and lossless against themselves."""

from dataclasses import replace

import pytest
import torch
import transformers as tr

from engine.models import loading, quantising
from engine.models.pairs import QUANTISATIONS, checked_quantisation
from engine.race import Race, Settings
from helpers.checkpoints import SIZES, byte_tokenizer, logits_of, pair_of, reference, write

IDS = torch.arange(40, 60)[None]
LOUD = 8.0  # times the input of a layer, so that LLM.int8 would find outliers in it


def raced(pair, temperature: float, seed: int) -> dict:
    settings = Settings("Once upon", ("vanilla", "tree"), temperature=temperature, max_new_tokens=60, seed=seed)
    race = Race(replace(pair, stop_ids=frozenset()), settings)
    for _ in race.run():
        pass
    return race.result()


@pytest.mark.parametrize(
    ("quantisation", "kept", "nearest", "farthest"),
    [("8-bit", torch.int8, 0.003, 0.1), ("nf4", torch.uint8, 0.005, 0.3)],
)
def test_weights_are_kept_so_and_forward_near_the_plain_ones(quantisation, kept, nearest, farthest, llama):
    """Through bitsandbytes for real: near the plain logits and not equal to them. Embedding and head stay as they are."""
    loaded = loading.load_pair(pair_of(llama[0]), device="cpu", quantisation=quantisation)
    model = loaded.target.model
    assert (loaded.dtype, loaded.target.way) == (quantisation, "transformers")
    assert model.model.layers[0].mlp.down_proj.weight.dtype == kept
    assert model.lm_head.weight.dtype == model.model.embed_tokens.weight.dtype == torch.float32
    wanted = reference(llama[1])
    assert nearest < (logits_of(loaded.target) - wanted).std() / wanted.std() < farthest


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("quantisation", QUANTISATIONS[1:])
def test_a_quantised_target_is_lossless_against_itself(quantisation, temperature, llama):
    """The target guesses for itself, so paths are long. Where texts part, the two best logits must have been a near-tie."""
    pair = loading.load_pair(pair_of(llama[0], llama[0]), device="cpu", quantisation=quantisation)
    results = [raced(pair, temperature, seed) for seed in range(3)]
    assert all(each["identical"] or each["divergence"]["margin"] < 0.05 for each in results)
    assert any(each["identical"] for each in results) and max(each["lanes"][1]["tau"] for each in results) > 1.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_eight_bits_no_row_of_a_product_depends_on_another(dtype, llama):
    """LLM.int8's own columns of outliers would: one loud row changes how all of them are rounded."""
    settings = {"dtype": dtype, "device_map": {"": "cpu"}}
    ours = tr.AutoModelForCausalLM.from_pretrained(
        llama[0], quantization_config=quantising.config_of("8-bit", dtype), **settings
    ).eval()
    usual = tr.AutoModelForCausalLM.from_pretrained(
        llama[0], quantization_config=tr.BitsAndBytesConfig(load_in_8bit=True), **settings
    ).eval()
    torch.manual_seed(0)
    x = torch.randn(16, 64, dtype=dtype) * LOUD

    def parted(model) -> float:
        linear = model.model.layers[0].mlp.up_proj
        with torch.inference_mode():
            alone = torch.cat([linear(x[row : row + 1]) for row in range(16)])
            return (alone - linear(x[None])[0]).abs().max().item()

    assert parted(ours) == 0.0 and parted(usual) > 0.01


def test_a_quantised_forward_parts_by_rounding_at_most(llama):
    """A row alone and the same row among twenty: 8-bit rounds alike, a 4-bit kernel of a CPU may round its inputs to bfloat16."""
    limits = {"8-bit": 0.05, "nf4": 0.05}
    for quantisation, limit in limits.items():
        model = loading.load_pair(pair_of(llama[0]), device="cpu", quantisation=quantisation).target.model
        with torch.inference_mode():
            whole = model(IDS).logits[0]
            alone = torch.cat([model(IDS[:, : count + 1]).logits[0, -1:] for count in range(IDS.shape[1])])
        assert (whole - alone).std() < limit * whole.std()


@pytest.mark.parametrize("sizes", [{"intermediate_size": 100}, {"hidden_size": 72, "intermediate_size": 33}])
def test_eight_bits_keep_any_size_and_four_refuse_what_crashes_them(sizes, tmp_path):
    model = write(tmp_path, **sizes)
    found = loading.load_pair(pair_of(tmp_path), device="cpu", quantisation="8-bit")
    wanted = reference(model)
    assert 0.003 < (logits_of(found.target) - wanted).std() / wanted.std() < 0.1
    with pytest.raises(
        ValueError, match=r"multiples of 64; .* has a (MLP size of 100|hidden size of 72).*8-bit or none"
    ):
        loading.load_pair(pair_of(tmp_path), device="cpu", quantisation="nf4")


@pytest.mark.parametrize("quantisation", QUANTISATIONS[1:])
def test_a_model_of_which_nothing_is_quantised_is_refused(quantisation, tmp_path):
    """Falcon's own linear layers would stay as they are, without a word."""
    config = tr.FalconConfig(**SIZES | {"hidden_size": 128})
    tr.FalconForCausalLM(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"\(falcon\) has no layers that bitsandbytes keeps in {quantisation}"):
        loading.load_pair(pair_of(tmp_path), device="cpu", quantisation=quantisation)


def test_an_unknown_quantisation_names_the_known_ones(llama):
    with pytest.raises(ValueError, match=r"Unknown quantisation 'int3'\. Available: none, 8-bit, nf4"):
        loading.load(pair_of(llama[0]), "cpu", quantisation="int3")
    assert [checked_quantisation(each) for each in QUANTISATIONS] == list(QUANTISATIONS)
