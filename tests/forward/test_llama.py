"""The CPU's forward: the lean one is transformers' for every family, with packed and with plain weights; models that run through
transformers are lightened without a change; and a draft in eight bits costs no token."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.forward import llama, llama_compiled
from engine.forward.lighten import PackedLinear, lighten
from engine.forward.llama import LeanLlama, eight_bits_pay, serves
from engine.forward.llama_compiled import SmallLlama, is_small
from engine.forward.runner import Runner
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree
from helpers.pairs import tiny_llama, tiny_pair

PROMPT = [5, 80, 33, 12, 200, 41, 7]
SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 20}
YARN = {"factor": 4.0, "original_max_position_embeddings": 40}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama, all heads": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 4}),
    "llama, biases, tied": (
        LlamaForCausalLM,
        LlamaConfig,
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama 3": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4} | LLAMA3},
    ),
    "llama, yarn": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4} | YARN},
    ),
    "mistral": (MistralForCausalLM, MistralConfig, {}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 32}),
}


def random_model(name: str, dtype: torch.dtype = torch.float32):
    """The same weights for the same name; norms and biases too, so that a forgotten one shows."""
    kind, config, sizes = MODELS[name]
    torch.manual_seed(0)
    model = kind(config(**{**SIZES, **sizes}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model.to(dtype).eval()


def answers(runner: Runner) -> torch.Tensor:
    """Logits of a prompt, behind it of a tree, and behind that of a single row, `[12, V]`."""
    target = Target(runner, 64)
    session = target.session
    prompt, _ = session.forward(PROMPT, list(range(len(PROMPT))))
    session.keep(list(range(len(PROMPT))))
    tree = DraftTree.rooted(9)
    tree.add(0, 17, 1.0, 1.0)
    tree.add(tree.add(0, 30, 1.0, 1.0), 31, 1.0, 1.0)
    verified, _ = target.verify(tree)
    target.commit([2])
    single, _ = target.verify(DraftTree.rooted(50))
    return torch.cat([prompt, verified, single]).float()


def unlightened(model) -> Runner:
    """A runner over transformers' own modules as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.forward.runner.lighten", lambda model: None)
        return Runner(model, lean=False)


def over(weights: LeanLlama, model) -> Runner:
    """A runner whose lean forward is this one."""
    runner = unlightened(model)
    runner.lean = weights
    return runner


@cache
def expected_of(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return answers(unlightened(random_model(name, dtype)))


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return (found - expected).square().mean().sqrt().item()


# the lean forward


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("packed_from", [1, 1000])
def test_the_lean_forward_is_the_transformers_one(name, packed_from):
    model = random_model(name)
    assert serves(model)
    found = answers(over(LeanLlama(model, packed_from), model))
    assert torch.allclose(found, expected_of(name), atol=2e-5, rtol=0)


def test_many_rows_at_once_say_what_a_few_at_a_time_say():
    """More than `FEW_ROWS` take other operations between the forward's products."""
    model = random_model("qwen3")
    ids = torch.randint(0, 256, (80,), generator=torch.Generator().manual_seed(1)).tolist()
    found = []
    for steps in ((80,), (60, 12, 8)):
        assert (max(steps) > llama.FEW_ROWS) == (len(steps) == 1)
        session, logits = Runner(model).open(80, features=True), []
        for step in steps:
            places = list(range(session.rows, session.rows + step))
            logits.append(session.forward([ids[place] for place in places], places))
            session.keep(list(range(step)))
        found.append([torch.cat(each) for each in zip(*logits, strict=True)])
    (whole, seen), (pieces, seen_in_pieces) = found
    assert torch.allclose(whole, pieces, atol=2e-5, rtol=0) and torch.allclose(seen, seen_in_pieces, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_in_bfloat16_the_lean_forward_is_as_near_the_truth_as_the_transformers_one(name):
    truth, model = expected_of(name), random_model(name, torch.bfloat16)
    assert serves(model)
    error = distance(expected_of(name, torch.bfloat16), truth)
    assert error > 1e-4
    for packed_from in (1, 1000):
        assert distance(answers(over(LeanLlama(model, packed_from), model)), truth) < 1.3 * error


def test_a_model_keeps_its_own_weights_under_the_lean_forward():
    """Others read them: `generate`, the learned drafters' embedding and head."""
    model, untouched = random_model("qwen2"), random_model("qwen2")
    LeanLlama(model, packed_from=1)
    for (name, found), (_, expected) in zip(model.named_parameters(), untouched.named_parameters(), strict=True):
        assert torch.equal(found, expected), name
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.tensor([PROMPT])
    assert torch.equal(model(ids).logits, untouched(ids).logits)


def test_the_lean_forward_measures_from_how_many_rows_packed_weights_win():
    assert LeanLlama(tiny_llama(0)).packed_from in (1, 2, 4, 8, 16, 17)


def test_the_lean_forward_is_offered_only_what_it_computes():
    assert not serves(tiny_llama(0).double())
    assert not serves(tiny_llama(0).half())
    gelu = tiny_llama(0)
    gelu.config.hidden_act = "gelu"
    assert not serves(gelu)
    dynamic = tiny_llama(0)
    dynamic.model.rotary_emb.rope_type = "dynamic"
    assert not serves(dynamic)
    windowed = random_model("mistral")
    assert serves(windowed)
    windowed.config.sliding_window = 100
    assert not serves(windowed)
    mixed = tiny_llama(0)
    mixed.lm_head.bfloat16()
    assert not serves(mixed)


# through transformers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_packed_linear_layers_leave_logits_and_weights_as_they_are(name, dtype):
    model = random_model(name, dtype)
    assert torch.allclose(
        answers(Runner(model, lean=False)),
        expected_of(name, dtype),
        atol=1e-5 if dtype == torch.float32 else 5e-2,
        rtol=0,
    )
    assert isinstance(model.lm_head, PackedLinear) and isinstance(model.model.layers[0].mlp.up_proj, PackedLinear)
    untouched = random_model(name, dtype)
    for (key, weight), (_, before) in zip(model.named_parameters(), untouched.named_parameters(), strict=True):
        assert torch.equal(weight, before), key
    tied = model.config.tie_word_embeddings
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    assert model.state_dict().keys() == untouched.state_dict().keys()


def test_without_onednns_products_the_logits_are_the_same(monkeypatch):
    def gone(*_):
        raise AttributeError("no such operation")

    expected = expected_of("qwen2")
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", gone)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", gone)
    for use_lean in (True, False):
        model = random_model("qwen2")
        assert torch.allclose(answers(Runner(model, lean=use_lean)), expected, atol=1e-5, rtol=0)
    assert not model.lm_head.packed.is_mkldnn


def test_a_processor_without_bfloat16_products_keeps_plain_weights(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    model = random_model("llama", torch.bfloat16)
    lighten(model)
    assert not model.lm_head.packed.is_mkldnn


def test_packed_linear_layers_give_way_to_gradients():
    model = random_model("llama")
    lighten(model)
    x = torch.randn(2, 64, requires_grad=True)
    model.lm_head(x).sum().backward()
    assert torch.allclose(x.grad[0], model.lm_head.weight.sum(0), atol=1e-5)


def test_weights_of_other_types_are_left_alone():
    for model in (tiny_llama(0).double(), tiny_llama(0).half()):
        Runner(model, lean=False)
        assert type(model.lm_head) is torch.nn.Linear


# one row of bfloat16


def test_a_single_bfloat16_query_asked_twice_gets_its_own_answer(monkeypatch):
    """Every attention sees two rows or more, and the logits are those of one row."""
    attention, seen = torch.nn.functional.scaled_dot_product_attention, []

    def watched(query, *rest, **options):
        seen.append(query.shape[2])
        return attention(query, *rest, **options)

    def single(runner) -> torch.Tensor:
        session = runner.open(32)
        session.prefill(PROMPT)
        seen.clear()
        return session.forward([9], [len(PROMPT)])[0].float()

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model = random_model("llama, all heads", torch.bfloat16)
    expected = single(unlightened(random_model("llama, all heads", torch.bfloat16)))
    assert set(seen) == {1}
    for use_lean in (True, False):
        assert distance(single(Runner(model, lean=use_lean)), expected) < 3e-2
        assert set(seen) == {2}


def test_generate_goes_on_with_attention_in_two_rows():
    model, plain = (random_model("llama, all heads", torch.bfloat16) for _ in range(2))
    lighten(model)
    ids = torch.tensor([PROMPT])
    options = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    found, expected = (torch.stack(each.generate(ids, **options).logits[:2]).float() for each in (model, plain))
    assert distance(found, expected) < 3e-2


# drafts in eight bits


def raced(pair, system: str, **settings) -> dict:
    race = Race(pair, Settings("Story: Once upon a time", ("vanilla", system), max_new_tokens=32, seed=3, **settings))
    for _ in race.run():
        pass
    return race.result()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_in_eight_bits_costs_no_token(embedded, temperature):
    for pair in (tiny_pair(), embedded):
        pair = replace(pair, draft=Runner(pair.draft.model, eight_bit=True))
        assert pair.draft.lean.eight_bit and not pair.target.lean.eight_bit
        assert raced(pair, "tree", temperature=temperature)["identical"] is True


def test_eight_bits_say_the_same_on_every_load_and_nearly_what_the_draft_says(embedded):
    first, second = (answers(Runner(embedded.draft.model, eight_bit=True)) for _ in range(2))
    exact = answers(Runner(embedded.draft.model))
    assert torch.equal(first, second)
    assert 0 < distance(first, exact) < 0.2 * exact.std().item()


@pytest.fixture
def no_draft_is_small(monkeypatch):
    monkeypatch.setattr(llama_compiled, "LARGEST", 0)


def test_many_rows_of_a_larger_draft_in_eight_bits_are_exact(no_draft_is_small):
    ids = list(range(17))
    exact, rounded = (Runner(tiny_llama(1), eight_bit=each).open(40) for each in (False, True))
    (whole, _), (found, _) = exact.forward(ids, ids), rounded.forward(ids, ids)
    assert torch.allclose(found, whole, atol=1e-4, rtol=0)
    (few, _), (found, _) = exact.forward(ids[:16], ids[:16]), rounded.forward(ids[:16], ids[:16])
    assert not torch.allclose(found, few, atol=1e-2, rtol=0)


def test_biases_and_bfloat16_go_with_eight_bits():
    truth = expected_of("llama, biases, tied")
    for dtype in (torch.float32, torch.bfloat16):
        model = random_model("llama, biases, tied", dtype)
        assert distance(answers(Runner(model, eight_bit=True)), truth) < 0.2 * truth.std().item()


@pytest.mark.parametrize("name", [name for name in MODELS if "biases" not in name])
def test_a_small_draft_is_the_model_in_eight_bits(name):
    """With its matrices rounded before, as its forward rounds them, next to nothing is left."""
    model = random_model(name)
    runner = Runner(model, eight_bit=True)
    assert isinstance(runner.lean, SmallLlama)
    assert 1e-3 < distance(answers(runner), expected_of(name)) / expected_of(name).std() < 0.1
    with torch.no_grad():
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
                on_grid(linear.weight, layer.input_layernorm.weight)
            for linear in (mlp.gate_proj, mlp.up_proj):
                on_grid(linear.weight, layer.post_attention_layernorm.weight)
            for linear in (attention.o_proj, mlp.down_proj):
                on_grid(linear.weight, torch.ones(()))
        tied = model.lm_head.weight is model.model.embed_tokens.weight
        on_grid(model.lm_head.weight, model.model.norm.weight)
    assert tied == (name == "qwen2")
    found, expected = answers(Runner(model, eight_bit=True)), answers(unlightened(model))
    assert distance(found, expected) / expected.std() < 3e-4


def on_grid(matrix: torch.Tensor, columns: torch.Tensor) -> None:
    """Round the matrix, in place, to what eight bits hold of it times `columns`."""
    step = (matrix * columns).abs().amax(1, keepdim=True) / 127
    matrix.copy_((matrix * columns / step).round() * step / columns)


def test_small_drafts_are_few_float32_weights_without_biases(no_draft_is_small):
    assert not is_small(random_model("llama"))
    llama_compiled.LARGEST = 10**6
    assert is_small(random_model("llama")) and is_small(random_model("qwen2"))
    assert not is_small(random_model("llama", torch.bfloat16)) and not is_small(random_model("llama, biases, tied"))


def test_eight_bits_are_chosen_by_size_where_the_machine_has_them(embedded, monkeypatch):
    assert eight_bits_pay(embedded.draft.model) and embedded.draft.lean.eight_bit
    assert not embedded.target.lean.eight_bit
    assert not eight_bits_pay(tiny_llama(0))
    assert not eight_bits_pay(embedded.draft.model.__class__(embedded.draft.model.config).double())

    def unable(*_):
        raise RuntimeError("no eight-bit products")

    monkeypatch.setattr(llama, "Int8", unable)
    assert not eight_bits_pay(embedded.draft.model)
