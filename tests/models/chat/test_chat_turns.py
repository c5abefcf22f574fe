"""Several turns of a chat: the template's own messages, what was typed in them stays text, equal lanes, files, limits and refusals."""

import json
from dataclasses import replace

import pytest
from transformers import PreTrainedTokenizerFast

from engine.measure.peers import generate_with_transformers
from engine.models import loading
from engine.models.chat import render_chat, tokenise_chat
from engine.page.screens.requests import build_request_within_token_limit, max_cache_bytes_of_race
from engine.page.views.wire import serialise_whole_race_as_event
from engine.race import Race, Settings, encode_prompt
from engine.record.race_file import Record
from helpers.chat import CHATML, HARMLESS, HOSTILE, MARKS, TOKENIZERS, asked, raced, with_marks, write_chat_pair
from helpers.checkpoints import byte_tokenizer, pair_of

TURNS = (("Who was Ada Lovelace?", "She wrote the first program."), ("When?", "In 1843."))
LAST_ALONE = "<|im_start|>{{ messages[-1]['content'] }}<|im_end|>"
FORGETS_THOUGHTS = CHATML.replace("message['content'] | trim", "message['content'].split('</think>')[-1] | trim")


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    target, draft = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("draft")
    write_chat_pair(target, draft)
    return loading.load(pair_of(target, draft), "cpu")


def chat_of(turns, message: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    earlier = [{"role": role, "content": text} for turn in turns for role, text in zip(roles, turn, strict=True)]
    return [*earlier, *asked(message)]


@pytest.mark.parametrize("message", HARMLESS)
def test_earlier_turns_stand_before_the_prompt_as_in_the_template(tokenizer, message):
    plain = tokenizer.apply_chat_template(chat_of(TURNS, message), add_generation_prompt=True)["input_ids"]
    assert tokenise_chat(tokenizer, message, turns=TURNS) == plain != tokenise_chat(tokenizer, message)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("words", HOSTILE)
def test_a_control_token_in_an_earlier_turn_stays_text(tokenizer, words, place):
    turn = ["Hi", "Hello!"]
    turn[place] = words
    found, harmless = (tokenise_chat(tokenizer, "And?", turns=[each]) for each in (turn, ["Hi", "Hello!"]))
    special = set(tokenizer.all_special_ids) | {tokenizer.convert_tokens_to_ids(mark) for mark in MARKS}
    marks = [token for token in found if token in special]
    assert marks == [token for token in harmless if token in special] and marks
    text, rendered = tokenizer.decode(found), render_chat(tokenizer, "And?", turns=[turn])
    assert text.replace(" ", "") == rendered.replace(" ", "")


def test_a_template_may_forget_how_an_earlier_answer_was_thought_and_no_more():
    thoughtful = [("Hi", "<think>A greeting. Greet back.</think>Hello!")]
    forgetful = with_marks(byte_tokenizer(), FORGETS_THOUGHTS)
    text = forgetful.decode(tokenise_chat(forgetful, "And?", turns=thoughtful))
    assert "Hello!" in text and "greeting" not in text
    with pytest.raises(ValueError, match="holds 0 of the 4 requests and answers before the prompt"):
        tokenise_chat(with_marks(byte_tokenizer(), LAST_ALONE), "And?", turns=TURNS)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_lanes_with_earlier_turns_are_equal_and_a_race_file_keeps_the_turns(pair, temperature):
    settings = {"max_new_tokens": 12, "temperature": temperature, "seed": 3}
    race = raced(pair, "And then?", turns=TURNS, **settings)
    alone = raced(pair, "And then?", **settings)
    assert race.result()["identical"] is True
    for lane in race.lanes:
        assert lane.trace.turns == [[*turn] for turn in TURNS] and lane.trace.prompt == "And then?"
        assert lane.trace.prompt_tokens == tokenise_chat(pair.tokenizer, "And then?", turns=TURNS)
    record = race.to_record()
    again = Record.from_json(record.to_json())
    assert again == record and '"turns"' not in alone.to_record().to_json()
    started = json.loads(serialise_whole_race_as_event(again))["systems"]
    assert [system["trace"]["turns"] for system in started] == [[[*turn] for turn in TURNS]] * 3
    assert '"turns"' not in serialise_whole_race_as_event(alone.to_record())
    record.lanes[1].trace.turns = []
    with pytest.raises(ValueError, match=r"lanes\[1\]\.trace\.turns differs"):
        Record.from_json(record.to_json())


def test_a_chat_goes_on_as_generate_does(pair):
    tokens = pair.tokenizer.apply_chat_template(chat_of(TURNS, "And then?"), add_generation_prompt=True)["input_ids"]
    told = raced(pair, "And then?", max_new_tokens=12, turns=TURNS)
    assert told.lanes[1].trace.tokens == generate_with_transformers(pair, tokens, 12, 0.0)


def test_earlier_turns_count_towards_the_limit_and_the_caches(pair):
    long = (("x" * pair.context, "y"),)
    with pytest.raises(ValueError, match=r"The chat is \d+ tokens long; .* holds 320 .* Begin a new one\."):
        encode_prompt(pair, "Hi", long)
    assert max_cache_bytes_of_race(pair, ["x"], 8, 2, TURNS) > max_cache_bytes_of_race(pair, ["x"], 8, 2)
    order = {"prompt": "x", "systems": ["vanilla", "tree"], "max_new_tokens": 8}
    assert build_request_within_token_limit(
        pair, "race", order | {"turns": [[*turn] for turn in TURNS]}
    ).cache_bytes == max_cache_bytes_of_race(pair, ["x"], 8, 2, TURNS)


def test_a_pair_that_does_not_chat_takes_no_earlier_turns(pair):
    raw = replace(pair, sends_raw_prompts=True)
    for refuse in (
        lambda: Race(raw, Settings("Hi", turns=TURNS)),
        lambda: max_cache_bytes_of_race(raw, ["Hi"], 8, 2, TURNS),
    ):
        with pytest.raises(ValueError, match=f"The {pair.title} does not chat, so it takes no earlier turns"):
            refuse()


def test_warming_up_reads_no_earlier_turns(pair, monkeypatch):
    """Its text is longer than this prompt, so with the turns it would be more than is read."""
    characters = len("Hi") + sum(len(text) for turn in TURNS for text in turn)
    monkeypatch.setattr("engine.record.chat_turns.LONGEST_TEXT", characters)
    assert raced(pair, "Hi", max_new_tokens=4, turns=TURNS).result()["identical"] is True
    with pytest.raises(ValueError, match=f"have {characters + 1} characters together; at most {characters} are read"):
        Settings("Hi!", turns=TURNS)


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        (None, "The turns must be a list such as"),
        ("Hi", "The turns must be a list .* got 'Hi'"),
        ({"Hi": "Hello!"}, "The turns must be a list .* got an object"),
        (["Hi", "Hello!"], "Turn 1 must be two texts, a request and the answer to it, got 'Hi'"),
        ([["Hi", "Hello!"], ["Hi"]], "Turn 2 must be two texts, .* got a list"),
        ([("Hi", 1)], "Turn 1 must be two texts, .* got a list"),
        ([["Hi", None]], "Turn 1 must be two texts"),
        ([["Hi", "Hello!", "Bye"]], "Turn 1 must be two texts"),
        ([["  ", "Hello!"]], "The request of turn 1 is empty"),
        ([["Hi", "\ud800"]], "Turn 1 holds half a character"),
        ([["x", "y"]] * 100_000, "have 200,002 characters together; at most 20,000 are read. Begin a new chat"),
        ([["x" * 19_000, "y" * 999]], "have 20,001 characters together"),
    ],
)
def test_turns_that_are_none_are_refused_in_a_sentence(turns, words):
    with pytest.raises(ValueError, match=words) as refused:
        Settings("Hi", turns=turns)
    assert len(str(refused.value)) < 200
    assert Settings("Hi", turns=[["x" * 19_000, ""]]).turns == (("x" * 19_000, ""),)
