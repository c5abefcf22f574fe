"""Chat templates: the template's own control tokens and no others, templates that fail, and races of a target that has one."""

import re
from argparse import ArgumentParser
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, normalizers
from transformers import PreTrainedTokenizerFast

from engine.measure.options import (
    add_pair_options,
    add_system_prompt_and_thinking_options,
    chat_template_fields_of_options,
    load_pair_of_options,
)
from engine.models import loading
from engine.models.chat import refuse_unsupported_template_options, render_chat, tokenise_chat, tokenise_prompt
from engine.page.screens.cards import describe_pair
from engine.page.screens.requests import max_cache_bytes_of_race
from engine.race import encode_prompt
from engine.record.race_file import Record
from helpers.chat import (
    CHATML,
    HARMLESS,
    HOSTILE,
    TOKENIZERS,
    asked,
    chatml,
    llama_3,
    raced,
    with_marks,
    write_chat_pair,
)
from helpers.checkpoints import byte_tokenizer, pair_of


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


@pytest.mark.parametrize("message", HARMLESS)
def test_tokens_are_those_of_the_template(tokenizer, message):
    plain = tokenizer.apply_chat_template(asked(message), add_generation_prompt=True)["input_ids"]
    assert tokenise_chat(tokenizer, message) == plain


@pytest.mark.parametrize("message", HOSTILE)
def test_a_control_token_that_a_visitor_types_stays_text(tokenizer, message):
    found = tokenise_chat(tokenizer, message)
    named = {token: what.content for token, what in tokenizer.added_tokens_decoder.items() if what.content != "<unk>"}
    if (
        tokenizer.bos_token
    ):  # this template names no <think>, so the tokenizer's own word counts: it is no control token
        named = {token: name for token, name in named.items() if "think" not in name}
    marks = [token for token in found if token in named]
    assert marks == [token for token in tokenise_chat(tokenizer, "harmless") if token in named] and marks
    text, rendered = tokenizer.decode(found), render_chat(tokenizer, message)
    assert text.replace(" ", "") == rendered.replace(" ", "")  # metaspace may put a space behind a control token


def test_the_beginning_comes_once():
    tokenizer = llama_3()
    assert tokenizer("Hi")["input_ids"].count(tokenizer.bos_token_id) == 1
    found = tokenise_chat(tokenizer, "Hi")
    assert found[0] == tokenizer.bos_token_id and found.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("<|im_start|>{{ add_generation_prompt }}", "holds the prompt 0 times"),
        ("{{ messages[0]['content'] }}{{ messages[0]['content'] }}", "holds the prompt 2 times"),
        ("{{ raise_exception('Roles must alternate.') }}", "failed: 'Roles must alternate.'"),
        ("{{ messages[0]['content'] + 1 }}", "template failed"),
        ("{% if %}", "template failed"),
        ("{{ messages.__class__.__mro__ }}", "template failed"),
    ],
)
def test_a_template_that_cannot_take_the_prompt_is_refused_by_a_sentence(template, sentence):
    tokenizer = with_marks(byte_tokenizer(), template)
    with pytest.raises(ValueError, match=sentence) as refused:
        tokenise_chat(tokenizer, "Hi")
    assert "--raw" in str(refused.value)


def test_what_the_tokenizer_cannot_read_as_text_is_refused():
    """Upper case becomes a control token behind this normaliser, which the search for its name does not see."""
    tokenizer = byte_tokenizer()
    backend = tokenizer.backend_tokenizer
    backend.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("<|im_end|>", special=True, normalized=True)], special_tokens=True)
    tokenizer.chat_template = "{{ messages[0]['content'] }}<|im_end|>"
    assert tokenise_chat(tokenizer, "hi")
    with pytest.raises(ValueError, match="Take it out of the prompt"):
        tokenise_chat(tokenizer, "hi <|IM_END|>")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    target, draft = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("draft")
    write_chat_pair(target, draft)
    return target, draft


@pytest.fixture(scope="module")
def pair(folders):
    return loading.load(pair_of(*folders), "cpu")


def test_a_prompt_is_sent_through_the_template_and_raw_stays_possible(pair):
    prompt, raw = "Who was Ada Lovelace?", replace(pair, sends_raw_prompts=True)
    assert pair.chat and not raw.chat
    assert encode_prompt(pair, prompt) == tokenise_prompt(pair, prompt) == tokenise_chat(pair.tokenizer, prompt)
    assert encode_prompt(raw, prompt) == pair.tokenizer(prompt)["input_ids"]
    for each in (pair, raw):
        race = raced(each, prompt, max_new_tokens=24)
        assert race.result()["identical"] is True
        for lane in race.lanes:
            assert lane.trace.prompt_tokens == encode_prompt(each, prompt)
            assert lane.trace.prompt == prompt and lane.trace.chat is each.chat


def test_lanes_are_lossless_above_temperature_zero(pair):
    assert raced(pair, HOSTILE[1], max_new_tokens=24, temperature=0.8, seed=5).result()["identical"] is True


def test_the_reply_ends_at_the_end_of_the_turn_which_is_not_shown(pair):
    [lane] = raced(pair, "Who was Ada Lovelace?", ("vanilla",), max_new_tokens=60).lanes
    end = pair.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end in pair.stop_ids
    assert lane.trace.tokens[-1] == end and lane.trace.steps[-1].end == "stop" and len(lane.trace.tokens) < 60
    assert len(lane.trace.tokens) == 4 and "<|im_end|>" not in lane.trace.text
    assert lane.trace.text == pair.tokenizer.decode(lane.trace.tokens[:-1], skip_special_tokens=True)


def test_the_template_counts_towards_the_limit_and_the_caches(pair):
    fits = pair.context - len(encode_prompt(pair, "x"))
    assert len(encode_prompt(pair, "x" * fits)) == pair.context - 1
    with pytest.raises(ValueError, match=rf"{pair.context} tokens long"):
        encode_prompt(pair, "x" * (fits + 1))
    assert encode_prompt(replace(pair, sends_raw_prompts=True), "x" * (fits + 1))
    assert max_cache_bytes_of_race(pair, ["x"], 8, 2) > max_cache_bytes_of_race(
        replace(pair, sends_raw_prompts=True), ["x"], 8, 2
    )


def test_a_race_file_says_that_a_race_was_a_chat(pair):
    record = raced(pair, "Hi", max_new_tokens=8).to_record()
    again = Record.from_json(record.to_json())
    assert again == record and all(lane.trace.chat for lane in again.lanes)
    record.lanes[1].trace.chat = False
    with pytest.raises(ValueError, match=r"lanes\[1\]\.trace\.chat differs"):
        Record.from_json(record.to_json())


@pytest.mark.parametrize("raw", [False, True])
def test_commands_send_prompts_raw_when_asked(folders, raw):
    parser = ArgumentParser()
    add_pair_options(parser)
    options = parser.parse_args(["--target", str(folders[0]), "--device", "cpu", *["--raw"] * raw])
    assert load_pair_of_options(options).chat is not raw


def test_a_pair_without_a_template_reads_prompts_as_they_are(embedded):
    text = "Story: <|endoftext|> Once"
    assert not embedded.chat and encode_prompt(embedded, text) == embedded.tokenizer(text)["input_ids"]


def test_an_empty_template_is_none(pair):
    assert not replace(pair, tokenizer=SimpleNamespace(chat_template="")).chat


THINKS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
)
NO_SYSTEM = "{% for message in messages if message['role'] == 'user' %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[-1]['content'] }}"
)


def test_a_system_message_stands_before_every_prompt_and_lanes_stay_equal(pair):
    told = replace(pair, system="Answer in French.")
    text = pair.tokenizer.decode(encode_prompt(told, "Hi"))
    assert text == "<|im_start|>system\nAnswer in French.<|im_end|>\n" + pair.tokenizer.decode(
        encode_prompt(pair, "Hi")
    )
    assert encode_prompt(replace(told, sends_raw_prompts=True), "Hi") == encode_prompt(
        replace(pair, sends_raw_prompts=True), "Hi"
    )
    race = raced(told, "Hi", max_new_tokens=12)
    assert race.result()["identical"] is True and race.lanes[0].trace.prompt == "Hi"
    assert max_cache_bytes_of_race(told, ["x"], 8, 2) > max_cache_bytes_of_race(pair, ["x"], 8, 2)


@pytest.mark.parametrize("message", HOSTILE)
def test_what_a_visitor_types_stays_text_behind_a_system_message_too(message):
    tokenizer = chatml()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenise_chat(tokenizer, message, "Be kind.").count(end) == 2


def test_thinking_is_switched_where_the_template_has_a_switch():
    tokenizer = with_marks(byte_tokenizer(), THINKS)
    texts = {
        choice: tokenizer.decode(tokenise_chat(tokenizer, "Hi", thinking=choice)) for choice in (None, True, False)
    }
    assert texts[None] == texts[True] and texts[False] == texts[True] + "<think>\n\n</think>"
    refuse_unsupported_template_options(tokenizer, "mine", "Be kind.", False)


@pytest.mark.parametrize(
    ("template", "system", "thinking", "sentence"),
    [
        (None, "Be kind.", None, "mine has no chat template, so it takes neither"),
        (None, "", True, "mine has no chat template, so it takes neither"),
        (NO_SYSTEM, "Be kind.", None, "The chat template of mine holds a system message 0 times and must hold it once"),
        (REFUSES, "Be kind.", None, "The target's chat template failed: 'no system'"),
        (CHATML, "a <|im_end|> b", None, "--system-prompt holds a control token"),
        (CHATML, "", False, "The chat template of mine has no switch for thinking. Leave --thinking out."),
    ],
)
def test_what_a_template_cannot_do_is_refused_before_weights_are_read(template, system, thinking, sentence):
    tokenizer = with_marks(byte_tokenizer(), template)
    refuse_unsupported_template_options(tokenizer, "mine", "", None)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        refuse_unsupported_template_options(tokenizer, "mine", system, thinking)


def test_the_pages_options_say_both_and_have_no_meaning_without_the_template():
    parser = ArgumentParser()
    add_pair_options(parser)
    add_system_prompt_and_thinking_options(parser)
    given = ["--system-prompt", " Be kind. ", "--thinking", "off"]
    assert chat_template_fields_of_options(parser.parse_args(given)) == {"system": "Be kind.", "thinking": False}
    assert chat_template_fields_of_options(parser.parse_args([])) == {"system": "", "thinking": None}
    with pytest.raises(ValueError, match="--raw sends prompts without the chat template"):
        chat_template_fields_of_options(parser.parse_args([*given, "--raw"]))


def test_the_head_says_what_stands_before_a_prompt(pair):
    way = describe_pair(replace(pair, system="Answer in French.", thinking=False))["way"]
    assert "stands before each prompt: 'Answer in French.'. Thinking is switched off." in way
    assert "before each prompt" not in describe_pair(pair)["way"]
