"""Models that run through transformers are lightened without a change to what they say."""

import pytest
import torch

from engine.forward.packed_linear import PackedLinear, optimise_cpu_linear_and_attention
from engine.forward.runner import Runner
from helpers.families import MODELS, PROMPT, answers, distance, expected_of, random_model, unlightened
from helpers.pairs import tiny_llama


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_packed_linear_layers_leave_logits_and_weights_as_they_are(name, dtype):
    model = random_model(name, dtype)
    assert torch.allclose(
        answers(Runner(model, use_custom_forward=False)),
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
    for use_own in (True, False):
        model = random_model("qwen2")
        assert torch.allclose(answers(Runner(model, use_custom_forward=use_own)), expected, atol=1e-5, rtol=0)
    assert not model.lm_head.packed.is_mkldnn


def test_a_processor_without_bfloat16_products_keeps_plain_weights(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    model = random_model("llama", torch.bfloat16)
    optimise_cpu_linear_and_attention(model)
    assert not model.lm_head.packed.is_mkldnn


def test_packed_linear_layers_give_way_to_gradients():
    model = random_model("llama")
    optimise_cpu_linear_and_attention(model)
    x = torch.randn(2, 64, requires_grad=True)
    model.lm_head(x).sum().backward()
    assert torch.allclose(x.grad[0], model.lm_head.weight.sum(0), atol=1e-5)


def test_weights_of_other_types_are_left_alone():
    for model in (tiny_llama(0).double(), tiny_llama(0).half()):
        Runner(model, use_custom_forward=False)
        assert type(model.lm_head) is torch.nn.Linear


def test_a_single_bfloat16_query_asked_twice_gets_its_own_answer(monkeypatch):
    """Every attention sees two rows or more, and the logits are those of one row."""
    attention, seen = torch.nn.functional.scaled_dot_product_attention, []

    def watched(query, *rest, **options):
        seen.append(query.shape[2])
        return attention(query, *rest, **options)

    def single(runner) -> torch.Tensor:
        session = runner.open_session(32)
        session.prefill(PROMPT)
        seen.clear()
        return session.forward([9], [len(PROMPT)])[0].float()

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model = random_model("llama, all heads", torch.bfloat16)
    expected = single(unlightened(random_model("llama, all heads", torch.bfloat16)))
    assert set(seen) == {1}
    for use_own in (True, False):
        assert distance(single(Runner(model, use_custom_forward=use_own)), expected) < 3e-2
        assert set(seen) == {2}


def test_generate_goes_on_with_attention_in_two_rows():
    model, plain = (random_model("llama, all heads", torch.bfloat16) for _ in range(2))
    optimise_cpu_linear_and_attention(model)
    ids = torch.tensor([PROMPT])
    options = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    found, expected = (torch.stack(each.generate(ids, **options).logits[:2]).float() for each in (model, plain))
    assert distance(found, expected) < 3e-2
