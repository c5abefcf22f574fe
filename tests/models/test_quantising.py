"""Targets in 8 and 4 bits, on small random checkpoints: kept so, near the plain ones, and lossless against themselves."""

from dataclasses import replace

import pytest
import torch
import transformers as tr

from engine.forward.rounded_linear import EightBitLinear
from engine.models import loading, quantising
from engine.models.pairs import QUANTISATIONS
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
    ("quantisation", "kept", "way", "nearest", "farthest"),
    [("8-bit", torch.int8, "compiled", 0.003, 0.1), ("nf4", torch.uint8, "transformers", 0.005, 0.3)],
)
def test_weights_are_kept_so_and_forward_near_the_plain_ones(quantisation, kept, way, nearest, farthest, llama):
    """Near the plain logits and not equal to them. Embedding and head stay as they are."""
    loaded = loading.load_pair_anew(pair_of(llama[0]), device="cpu", quantisation=quantisation)
    model = loaded.target.model
    assert (loaded.dtype, loaded.target.forward_kind) == (quantisation, way)
    assert model.model.layers[0].mlp.down_proj.weight.dtype == kept
    assert model.lm_head.weight.dtype == model.model.embed_tokens.weight.dtype == torch.float32
    wanted = reference(llama[1])
    assert nearest < (logits_of(loaded.target) - wanted).std() / wanted.std() < farthest


def test_the_compiled_forward_computes_what_rounded_layers_do(llama):
    """Its logits are those of transformers over `EightBitLinear`, but for the order in which attention and norms add up."""
    runner = loading.load_pair_anew(pair_of(llama[0]), device="cpu", quantisation="8-bit").target
    with torch.inference_mode():
        wanted = reference(runner.model)
    assert {type(each) for each in runner.model.model.layers[0].mlp.children()} >= {EightBitLinear}
    assert runner.forward_kind == "compiled" and (logits_of(runner) - wanted).abs().max() < 1e-4 * wanted.abs().max()


def test_other_families_and_layers_are_rounded_too(tmp_path):
    """GPT-2 keeps its matrices transposed, and runs through transformers."""
    config = tr.GPT2Config(vocab_size=257, n_embd=96, n_layer=2, n_head=4, n_positions=128)
    plain = tr.GPT2LMHeadModel(config).eval()
    plain.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    runner = loading.load_pair_anew(pair_of(tmp_path), device="cpu", quantisation="8-bit").target
    layer, exact = runner.model.transformer.h[0].mlp.c_fc, plain.transformer.h[0].mlp.c_fc
    x = torch.randn(3, 96)
    with torch.inference_mode():
        assert (layer(x) - exact(x)).std() < 0.02 * exact(x).std()
    wanted = reference(plain)
    assert runner.forward_kind == "transformers"
    assert 0 < (logits_of(runner) - wanted).std() < 0.05 * wanted.std()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("quantisation", QUANTISATIONS[1:])
def test_a_quantised_target_is_lossless_against_itself(quantisation, temperature, llama):
    """The target guesses for itself, so paths are long. Where texts part, the two best logits must have been a near-tie."""
    pair = loading.load_pair_anew(pair_of(llama[0], llama[0]), device="cpu", quantisation=quantisation)
    results = [raced(pair, temperature, seed) for seed in range(3)]
    assert all(each["identical"] or each["divergence"]["margin"] < 0.05 for each in results)
    assert any(each["identical"] for each in results) and max(each["lanes"][1]["tau"] for each in results) > 1.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_eight_bits_no_row_of_a_product_depends_on_another(dtype, llama):
    """LLM.int8's own columns of outliers would: one loud row changes how all of them are rounded. Ours on a CPU and on a GPU do not."""
    settings = {"dtype": dtype, "device_map": {"": "cpu"}}
    ours = tr.AutoModelForCausalLM.from_pretrained(
        llama[0], quantization_config=quantising.bitsandbytes_config_of("8-bit", dtype), **settings
    ).eval()
    rounded = loading.load_pair_anew(
        pair_of(llama[0]), "cpu", {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype], "8-bit"
    ).target.model
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

    assert parted(ours) == parted(rounded) == 0.0 and parted(usual) > 0.01


def test_a_quantised_forward_parts_by_rounding_at_most(llama):
    """A row alone and the same row among twenty: 8-bit rounds alike, a 4-bit kernel of a CPU may round its inputs to bfloat16."""
    limits = {"8-bit": 0.05, "nf4": 0.05}
    for quantisation, limit in limits.items():
        model = loading.load_pair_anew(pair_of(llama[0]), device="cpu", quantisation=quantisation).target.model
        with torch.inference_mode():
            whole = model(IDS).logits[0]
            alone = torch.cat([model(IDS[:, : count + 1]).logits[0, -1:] for count in range(IDS.shape[1])])
        assert (whole - alone).std() < limit * whole.std()


@pytest.mark.parametrize("sizes", [{"intermediate_size": 100}, {"hidden_size": 72, "intermediate_size": 33}])
def test_eight_bits_keep_any_size_and_four_refuse_what_crashes_them(sizes, tmp_path):
    model = write(tmp_path, **sizes)
    found = loading.load_pair_anew(pair_of(tmp_path), device="cpu", quantisation="8-bit")
    wanted = reference(model)
    assert 0.003 < (logits_of(found.target) - wanted).std() / wanted.std() < 0.1
    with pytest.raises(
        ValueError, match=r"multiples of 64; .* has a (MLP size of 100|hidden size of 72).*8-bit or none"
    ):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu", quantisation="nf4")


@pytest.mark.parametrize("quantisation", QUANTISATIONS[1:])
def test_a_model_of_which_nothing_is_quantised_is_refused(quantisation, tmp_path):
    """Falcon's own linear layers would stay as they are, without a word."""
    config = tr.FalconConfig(**SIZES | {"hidden_size": 128})
    tr.FalconForCausalLM(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"\(falcon\) has no layers that can be kept in {quantisation}"):
        loading.load_pair_anew(pair_of(tmp_path), device="cpu", quantisation=quantisation)


def test_an_unknown_quantisation_names_the_known_ones(llama):
    with pytest.raises(ValueError, match=r"Unknown quantisation 'int3'\. Available: none, 8-bit, nf4"):
        loading.load(pair_of(llama[0]), "cpu", quantisation="int3")


# ---- checkpoints that are in eight bits already


@pytest.fixture(scope="module")
def kept(llama, tmp_path_factory):
    """The small checkpoint as bitsandbytes writes it, with its usual threshold for columns of outliers."""
    folder = tmp_path_factory.mktemp("kept")
    asked = tr.BitsAndBytesConfig(load_in_8bit=True)
    model = tr.AutoModelForCausalLM.from_pretrained(llama[0], quantization_config=asked, dtype=torch.float16)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def test_a_checkpoint_in_eight_bits_stays_in_eight_bits_when_nothing_is_asked(kept, llama):
    """It is widened and rounded anew: near what rounding the plain checkpoint gives."""
    loaded, made = (
        loading.load_pair_anew(pair_of(folder), "cpu", quantisation=asked)
        for folder, asked in ((kept, None), (llama[0], "8-bit"))
    )
    model = loaded.target.model
    assert (loaded.dtype, loaded.target.forward_kind) == ("8-bit", "compiled")
    assert {each.dtype for each in model.parameters()} == {
        torch.int8,
        torch.float32,
    } and model.config.dtype == torch.float32
    assert not any(type(each).__name__ == "Linear8bitLt" for each in model.modules())
    wanted = logits_of(made.target)
    assert 0 < (logits_of(loaded.target) - wanted).std() < 0.06 * wanted.std()  # both round by chance
    widened = loading.load_pair_anew(pair_of(kept), "cpu", quantisation="none").target.model
    twice = EightBitLinear(widened.model.layers[0].mlp.up_proj.weight)
    assert torch.equal(model.model.layers[0].mlp.up_proj.weight, twice.weight)


def test_a_checkpoint_in_eight_bits_is_widened_where_none_is_asked(kept):
    """A target for `--quantisation none`, and every draft model."""
    loaded, plain = (loading.load_pair_anew(pair_of(kept, kept), "cpu", quantisation=asked) for asked in (None, "none"))
    for model in (plain.target.model, plain.draft.model, loaded.draft.model):
        assert {type(each) for each in model.modules() if hasattr(each, "in_features")} == {torch.nn.Linear}
        assert {each.dtype for each in model.parameters()} == {torch.float32}
    wanted = logits_of(loaded.target)
    assert plain.dtype == "fp32" and 0 < (logits_of(plain.target) - wanted).std() < 0.1 * wanted.std()


def test_a_checkpoint_in_eight_bits_does_not_become_four(kept):
    for call in (loading.load_pair_anew, loading.check_files_memory_and_choose_quantisation):
        with pytest.raises(ValueError, match=r"weights in 8-bit: .*got nf4"):
            call(pair_of(kept), "cpu", quantisation="nf4")
