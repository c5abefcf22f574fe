"""generate() of transformers with this engine behind it: the same greedy tokens, one text a seed, and sentences for the rest."""

import re

import pytest
import torch
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LogitNormalization,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)

from engine.custom_generate import HONOURED, NO_TOKEN, OF_OTHERS, compute_weight_checksums, refuse_unsupported, treerace
from helpers.pairs import byte_tokenizer, tiny_llama

PROMPT = torch.tensor([[72, 101, 108, 108, 111, 32, 116, 104, 101, 114, 101, 32, 72, 101]])
OURS = {"custom_generate": treerace}
SYSTEMS = ["vanilla", "lookup", "tree", "auto", "sequoia", "model/chain/token_match"]


@pytest.fixture(scope="module")
def models():
    """A random target, and a draft that is often right: the target with a little noise on its head."""
    target, draft = tiny_llama(0), tiny_llama(0)
    noise = torch.randn(draft.lm_head.weight.shape, generator=torch.Generator().manual_seed(1))
    draft.lm_head.weight.data.add_(noise)
    return target, draft


def written(models, prompt=PROMPT, **options) -> list[int]:
    target, draft = models
    return target.generate(prompt, **{"max_new_tokens": 40, "draft": draft, **OURS, **options})[0].tolist()


def plain(models, **options) -> list[int]:
    return models[0].generate(PROMPT, **{"max_new_tokens": 40, "do_sample": False, **options})[0].tolist()


@pytest.mark.parametrize("system", SYSTEMS)
def test_greedy_tokens_are_those_of_generate(models, system):
    text = written(models, system=system, do_sample=False)
    assert text == plain(models) and len(text) == PROMPT.shape[1] + 40


def test_without_a_draft_it_looks_up(models):
    assert written(models, draft=None) == plain(models)


def test_a_drafter_that_must_be_trained_is_refused_with_a_command_that_names_a_folder(models):
    with pytest.raises(ValueError, match=r"Train one with `python -m engine train eagle --target FOLDER`"):
        written(models, system="eagle")


def test_a_stop_token_ends_the_text_where_generate_ends_it(models):
    ends = plain(models)[PROMPT.shape[1] + 7]
    text = written(models, eos_token_id=[ends, 3], do_sample=False)
    assert text == plain(models, eos_token_id=[ends, 3]) and text[-1] == ends


class AtLength(StoppingCriteria):
    def __init__(self, length):
        self.length, self.seen = length, []

    def __call__(self, input_ids, scores, **kwargs):
        self.seen.append(input_ids.shape[1])
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


@pytest.mark.parametrize("more", [1, 2, 3, 4, 5, 11])
def test_stopping_criteria_are_asked_after_every_token_of_a_burst(models, more):
    length = PROMPT.shape[1] + more
    criterion = AtLength(length)
    text = written(models, stopping_criteria=StoppingCriteriaList([criterion]), do_sample=False)
    assert text == plain(models)[:length]
    assert criterion.seen == list(range(PROMPT.shape[1] + 1, length + 1))


def test_a_seed_gives_one_text_with_every_system_and_another_seed_another(models):
    texts = {system: written(models, system=system, do_sample=True, temperature=0.8, seed=3) for system in SYSTEMS}
    del texts["sequoia"]  # it keeps the distribution, not the tokens
    assert len({tuple(text) for text in texts.values()}) == 1
    assert texts["tree"] != written(models, system="tree", do_sample=True, temperature=0.8, seed=4)
    assert texts["tree"] != plain(models)


@pytest.mark.parametrize(("options", "allowed"), [({"top_k": 3}, 3), ({"top_p": 1e-6}, 1), ({"top_k": 1}, 1)])
def test_top_k_and_top_p_leave_tokens_out(models, options, allowed):
    text = written(models, do_sample=True, temperature=1.5, **options)
    ids = torch.tensor([text])
    best = models[0](ids).logits[0].topk(allowed, dim=-1).indices
    for position in range(PROMPT.shape[1], len(text)):
        assert text[position] in best[position - 1]
    assert (text == plain(models)) is (allowed == 1)


def test_a_streamer_gets_the_prompt_then_every_token_then_the_end(models):
    class Streamer:
        def __init__(self):
            self.heard = []

        def put(self, value):
            self.heard += value.flatten().tolist()

        def end(self):
            self.heard.append("end")

    streamer = Streamer()
    text = written(models, stream_to=streamer)
    assert streamer.heard == [*text, "end"]


def test_changed_weights_are_read_again(models):
    target, draft = tiny_llama(5), models[1]
    before = written((target, draft))
    kept = target.__dict__["_treerace"][1]
    assert written((target, draft)) == before and target.__dict__["_treerace"][1] is kept
    with torch.no_grad():
        target.lm_head.weight.mul_(-1)
    assert written((target, draft)) == plain((target, draft)) != before


def merged_lora(weight: torch.Tensor) -> None:
    """As peft's `merge` does: the product of the adapter's two matrices, scaled, is added to the weight's data."""
    rank, (out, into) = 4, weight.shape
    numbers = torch.Generator().manual_seed(2)
    lora_b, lora_a = torch.randn(out, rank, generator=numbers), torch.randn(rank, into, generator=numbers)
    weight.data += (lora_b @ lora_a) * (16 / rank)


def merged_safely(weight: torch.Tensor) -> None:
    """As peft does with `safe_merge`: a copy of the data gets the product, and becomes the data."""
    merged = weight.data.clone()
    merged += torch.randn(merged.shape, generator=torch.Generator().manual_seed(3))
    weight.data = merged


CHANGES = {
    "a LoRA": merged_lora,
    "a LoRA, safely": merged_safely,
    "data.copy_": lambda weight: weight.data.copy_(-weight.data),
    "data.mul_": lambda weight: weight.data.mul_(-1.0),
    "rows in another order": lambda weight: weight.data.copy_(weight.data.flip(0)),
}


@pytest.mark.parametrize("way", CHANGES)
def test_weights_that_changed_in_place_are_noticed(models, way):
    """Most of these ways leave a tensor's pointer and version as they were."""
    target, draft = tiny_llama(5), models[1]
    before = written((target, draft))
    CHANGES[way](target.model.layers[0].mlp.down_proj.weight)
    CHANGES[way](target.model.layers[1].self_attn.o_proj.weight)
    assert written((target, draft)) == plain((target, draft)) != before


def test_one_number_of_a_target_or_a_draft_that_changed_is_noticed(models):
    target, draft = tiny_llama(5), tiny_llama(6)
    for number, model in ((1, target), (2, draft), (3, target)):
        written((target, draft), max_new_tokens=2)
        kept = target.__dict__["_treerace"][1]
        state = model.lm_head.weight._version, model.lm_head.weight.data_ptr()
        model.lm_head.weight.data[7, number] += 1e-3
        assert (model.lm_head.weight._version, model.lm_head.weight.data_ptr()) == state
        written((target, draft), max_new_tokens=2)
        assert target.__dict__["_treerace"][1] is not kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (70, 130)])
def test_a_weight_of_any_shape_and_type_has_checksums(dtype, shape):
    weight = torch.ones(shape, dtype=dtype)
    before = compute_weight_checksums(weight)
    assert torch.equal(compute_weight_checksums(weight.clone()), before)
    weight.view(-1)[-1] += 1
    assert not torch.equal(compute_weight_checksums(weight), before)
    whole = torch.arange(60, dtype=torch.int8).view(6, 10)
    assert torch.equal(
        compute_weight_checksums(whole.T), compute_weight_checksums(whole.T.contiguous())
    )  # as tied or cut out weights may lie


# By option that is honoured: calls with it, which end or draw otherwise than without it
WITH_EFFECT = {
    "max_new_tokens": {"max_new_tokens": 5},
    "max_length": {"max_new_tokens": None, "max_length": PROMPT.shape[1] + 9},
    "max_time": {"max_time": 0.0},
    "eos_token_id": {"eos_token_id": [*range(0, 256, 2)]},
    "do_sample": {"do_sample": True, "temperature": 3.0},
    "temperature": {"do_sample": True, "temperature": 3.0},
    "top_k": {"do_sample": True, "temperature": 3.0, "top_k": 1},
    "top_p": {"do_sample": True, "temperature": 3.0, "top_p": 1e-6},
}


@pytest.mark.parametrize("name", sorted(HONOURED))
def test_every_option_that_is_honoured_has_its_effect(models, name):
    """Lengths and stops end a text where generate() ends it; so do top_k and top_p where they leave one token."""
    options = WITH_EFFECT[name]
    text = written(models, **options)
    without = written(models, **{other: value for other, value in options.items() if other != name})
    assert text != without or name == "temperature"
    if name not in ("do_sample", "temperature"):
        assert text == plain(models, **options | {"do_sample": False})
    else:
        assert text != written(models) and text != written(models, **options | {"temperature": 0.9})


@pytest.mark.parametrize("more", [1, 4, 9])
def test_a_text_that_ends_at_a_string_takes_its_criterion(models, more):
    """transformers hands a callable no tokenizer, and refuses `stop_strings` without one."""
    tokenizer, length = byte_tokenizer(), PROMPT.shape[1]
    ends = tokenizer.decode(plain(models)[length + more : length + more + 2])
    criteria = StoppingCriteriaList([StopStringCriteria(tokenizer, [ends])])
    assert written(models, stopping_criteria=criteria) == plain(models, stopping_criteria=criteria)
    with pytest.raises(ValueError, match="stop strings"):
        written(models, stop_strings=[ends], tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"do_sample": True, "num_return_sequences": 2}, "num_return_sequences"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores, return_dict_in_generate"),
        ({"repetition_penalty": 1.3}, "cannot honour repetition_penalty."),
        ({"do_sample": True, "min_p": 0.1}, "cannot honour min_p."),
        ({"dola_layers": "high"}, "cannot honour dola_layers."),
        ({"penalty_alpha": 0.6, "top_k": 4}, "cannot honour penalty_alpha."),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
        ({"min_new_tokens": 3}, "min_new_tokens."),
        ({"logits_processor": LogitsProcessorList([LogitNormalization()])}, "LogitNormalization"),
        ({"attention_mask": torch.tensor([[0] + [1] * 13])}, "attention_mask with padding"),
        ({"prompt": PROMPT.repeat(2, 1)}, "this batch has 2"),
        ({"depth": 99}, "Depth must be between 1 and 12, got 99"),
        ({"nodes": 2.5}, "Nodes must be a whole number"),
        ({"system": "nothing"}, "Unknown system 'nothing'"),
        ({"system": "tree", "draft": None}, "has no draft model"),
        ({"do_sample": True, "seed": -1}, "Seed must be"),
        ({"prompt": PROMPT.repeat(1, 12)}, "The context holds 160"),
    ],
)
def test_what_it_cannot_honour_is_refused_by_name(models, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        written(models, **options)


def test_an_option_that_nobody_knows_to_be_harmless_is_refused(models):
    """Every option of generate() is refused with a value that it does not begin with, unless it is on the list."""
    silent = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    silent -= HONOURED | NO_TOKEN | OF_OTHERS
    assert {"dola_layers", "penalty_alpha", "num_beams", "min_length", "guidance_scale", "token_healing"} <= silent
    for name in sorted({*silent, "an_option_of_next_year"}):
        config = GenerationConfig(do_sample=True)
        setattr(config, name, 7)
        with pytest.raises(ValueError, match=f"cannot honour {name}[.]"):
            refuse_unsupported(PROMPT, config, {})


def test_options_at_rest_and_those_of_the_cache_change_nothing(models):
    resting = {"num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "penalty_alpha": 0.0, "min_p": 0.1}
    assert written(models, **resting, use_cache=True, pad_token_id=0, length_penalty=2.0) == plain(models)


def test_models_that_cannot_be_raced_are_refused(models):
    target = models[0]
    state = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_layer=1, n_head=2, n_embd=32, summary_first_dropout=0.0))
    state.config._attn_implementation = "eager"
    with pytest.raises(ValueError, match="GPT2LMHeadModel"):
        state.generate(PROMPT, max_new_tokens=4, pad_token_id=0, **OURS)
    eager = tiny_llama(2)
    eager.set_attn_implementation("eager")
    with pytest.raises(ValueError, match='Load LlamaForCausalLM with attn_implementation="sdpa"'):
        target.generate(PROMPT, max_new_tokens=4, draft=eager, **OURS)


def test_a_draft_with_padded_logits_needs_the_tokenizer(models):
    draft = tiny_llama(1, layers=1)
    draft.resize_token_embeddings(264)
    with pytest.raises(ValueError, match="Give draft_tokenizer"):
        written((models[0], draft))
    assert written((models[0], draft), draft_tokenizer=byte_tokenizer()) == plain(models)
    larger = byte_tokenizer()
    larger.add_tokens(["one more"])
    with pytest.raises(ValueError, match="more tokens than that"):
        written((tiny_llama(0), draft), draft_tokenizer=larger)
