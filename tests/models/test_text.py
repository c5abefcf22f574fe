"""Text of a stream of tokens: what the decoder makes of all of them, nothing taken back, and a label for every token."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engine.models.text import TokenTextStream, token_text_or_vocabulary_entry
from engine.race import Race, Settings
from helpers.pairs import tiny_pair

FEW = settings(max_examples=80, deadline=None, derandomize=True, database=None)
TEXTS = [
    "The fox and the little fox, and the bear.",
    "  two spaces\nand a line\t",
    "family 👨‍👩‍👧‍👦 flag 🏳️‍🌈 🦊🦊",
    "从前有一只小狐狸,它住在森林里。",
    "שלום עולם, مرحبا بالعالم",
    "é e\u0301 \ufffd x",
]
WORDS = ["the", "▁the", "▁fox", "▁and", "▁", "▁▁", "a", "b", "c", "é", "狐", ".", ","]


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3 and Qwen: merges of bytes, many of which end inside a character."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS * 3, trainers.BpeTrainer(vocab_size=360, initial_alphabet=alphabet, show_progress=False)
    )
    return backend


def byte_fallback() -> Tokenizer:
    """As Llama 2 and Mistral: the text's first space is not shown, and characters without a token are spelled in bytes."""
    names = ["<unk>", *WORDS, *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(
        models.BPE({name: token for token, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend


def metaspace() -> Tokenizer:
    """As T5: every word begins with a mark, which the first word does not show."""
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), *((word, -1.0) for word in WORDS)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


def word_piece() -> Tokenizer:
    """As BERT: a word's later parts are marked, and punctuation takes back the space before it."""
    names = ["[UNK]", "the", "fox", "##es", "##ing", ".", ",", "n't", "'", "s", "狐"]
    backend = Tokenizer(models.WordPiece({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def unigram_with_bytes() -> Tokenizer:
    """As Gemma: a text's first space stays, and characters without a token are spelled in bytes."""
    spelled = [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    names = [("<unk>", 0.0), *((word, -1.0) for word in WORDS), *spelled]
    backend = Tokenizer(models.Unigram(names, unk_id=0, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def word_ends() -> Tokenizer:
    """As the first GPT: a mark ends every word, and shows as a space unless the word is the last one."""
    names = ["<unk>", "the</w>", "fo", "x</w>", "a", "b</w>", "é</w>", "狐</w>", "."]
    vocab = {name: token for token, name in enumerate(names)}
    backend = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return backend


def whole_words() -> Tokenizer:
    """A word is a token, and there is no decoder: tokens are joined by spaces."""
    names = ["[UNK]", "the", "fox", "and", "狐", ".", ","]
    backend = Tokenizer(models.WordLevel({name: token for token, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


KINDS = {
    "byte level": byte_level,
    "byte fallback": byte_fallback,
    "metaspace": metaspace,
    "word piece": word_piece,
    "unigram with bytes": unigram_with_bytes,
    "word ends": word_ends,
    "whole words": whole_words,
}
SPELLS_BYTES = ["byte level", "byte fallback", "unigram with bytes"]


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    """With a token that ends the text, one that begins it, and an added word that is shown."""
    backend = KINDS[kind]()
    backend.add_special_tokens(["<s>", "</s>"])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def streamed(tokenizer, prompt: list[int], tokens: list[int]) -> list[str]:
    """A piece for every token, and the rest."""
    stream = TokenTextStream(tokenizer, prompt)
    return [*map(stream.add_token_and_take_text, tokens), stream.flush_held_text()]


def behind(tokenizer, prompt: list[int], tokens: list[int]) -> str:
    """What the decoder makes of all tokens at once, from where the prompt's own text ends or changes."""
    decode = tokenizer.backend_tokenizer.decode
    whole = decode(prompt + tokens)
    same = [one == other for one, other in zip(decode(prompt), whole, strict=False)]
    return whole[[*same, False].index(False) :]


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_text_never_shows_half_a_character_and_never_takes_one_back():
    """Byte tokens: the emoji needs four of them, which come one burst at a time."""
    pair = tiny_pair()
    text = "a🦊é猫!"
    *pieces, rest = streamed(pair.tokenizer, [1], pair.tokenizer(text)["input_ids"])
    assert "".join(pieces) == text
    assert pieces[1:5] == ["", "", "", "🦊"]
    assert all("\ufffd" not in piece for piece in pieces) and rest == ""


@pytest.mark.parametrize("kind", KINDS)
def test_random_tokens_stream_into_the_text_of_all_of_them(kind):
    """Whatever a model writes, behind whatever prompt. Ids beyond the vocabulary are those of padded logits."""
    tokenizer = tokenizer_of(kind)
    tokens = st.lists(st.integers(0, len(tokenizer) + 1), max_size=24)

    @FEW
    @given(tokens, tokens)
    def holds(prompt, tokens):
        assert "".join(streamed(tokenizer, prompt, tokens)) == behind(tokenizer, prompt, tokens)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_random_text_streams_as_the_decoder_shows_it(kind):
    """And where a vocabulary spells every byte, nothing of it is lost."""
    tokenizer = tokenizer_of(kind)
    plain = st.text(max_size=20).map(lambda text: text.replace("▁", "_"))

    @FEW
    @given(plain, plain)
    def holds(prompt, text):
        before, tokens = ids(tokenizer, prompt), ids(tokenizer, text)
        found = "".join(streamed(tokenizer, before, tokens))
        assert found == behind(tokenizer, before, tokens)
        if kind in SPELLS_BYTES:
            assert "".join(streamed(tokenizer, [], tokens)) == text

    holds()


@pytest.mark.parametrize("kind", SPELLS_BYTES)
@pytest.mark.parametrize("seed", range(3))
def test_raw_bytes_stream_into_the_text_of_all_of_them(kind, seed):
    """Of few kinds, so that whole, broken and cut characters come often, with tokens in between that are not shown."""
    tokenizer = tokenizer_of(kind)
    spelled = dict.fromkeys(token for text in ("🦊", "狐", "é") for token in ids(tokenizer_of("byte fallback"), text))
    if kind == "byte level":
        spelled = [token for token in range(len(tokenizer)) if "\ufffd" in tokenizer.decode([token])][seed * 16 :]
    some = [*list(spelled)[:16], *ids(tokenizer, "a"), tokenizer.eos_token_id]
    tokens = st.lists(st.sampled_from(some), max_size=12)

    @FEW
    @given(tokens, tokens)
    def holds(prompt, tokens):
        assert "".join(streamed(tokenizer, prompt, tokens)) == behind(tokenizer, prompt, tokens)

    holds()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_cut_anywhere_goes_on_where_the_prompt_ends(kind, text):
    """Also inside a character. Where the prompt is whole characters, prompt and pieces are the whole text."""
    tokenizer = tokenizer_of(kind)
    decode, whole = tokenizer.backend_tokenizer.decode, ids(tokenizer, text)
    for cut in range(len(whole) + 1):
        prompt, tokens = whole[:cut], whole[cut:]
        found = "".join(streamed(tokenizer, prompt, tokens))
        assert found == behind(tokenizer, prompt, tokens)
        if "\ufffd" not in decode(prompt):
            assert decode(prompt) + found == decode(whole)


@FEW
@given(st.text(max_size=30), st.text(max_size=30))
@example("👨‍👩‍", "👧‍👦🏳️‍🌈")
@example("שלום", " עולם مرحبا")
@example("e", "\u0301")
@example("\ufffd", "\ufffd")
@example("\x00", "a\x00")
def test_any_text_is_shown_behind_any_prompt(prompt, text):
    tokenizer = tokenizer_of("byte level")
    assert "".join(streamed(tokenizer, ids(tokenizer, prompt), ids(tokenizer, text))) == text


def test_a_text_that_ends_inside_a_character_shows_its_last_bytes():
    tokenizer = tokenizer_of("byte fallback")
    the, first, second = tokenizer.convert_tokens_to_ids(["▁the", "<0xF0>", "<0x9F>"])
    assert streamed(tokenizer, [the], [first, second]) == ["", "", "\ufffd\ufffd"]
    pair = tiny_pair()
    assert streamed(pair.tokenizer, [1], pair.tokenizer("a🦊")["input_ids"][:3]) == ["a", "", "", "\ufffd"]


def test_a_run_of_bytes_is_held_back_until_no_byte_can_break_it():
    """With byte fallback one bad byte makes the decoder replace the whole run: it must not have been shown before."""
    tokenizer = tokenizer_of("byte fallback")
    the, bad = tokenizer.convert_tokens_to_ids(["▁the", "<0xF0>"])
    fox = ids(tokenizer, "🦊")[1:]
    assert streamed(tokenizer, [the], [*fox, the]) == [*[""] * 4, "🦊 the", ""]
    assert streamed(tokenizer, [the], [*fox, bad, the]) == [*[""] * 5, "\ufffd" * 5 + " the", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_costs_no_more_behind_a_long_text(kind):
    """Broken bytes too, which a decoder shows as it shows unfinished ones."""
    tokenizer, sizes = tokenizer_of(kind), []
    broken = [token for token in range(250) if kind == "byte level" and "\ufffd" in tokenizer.decode([token])][:1]
    stream = TokenTextStream(tokenizer, [])
    for token in (ids(tokenizer, "the fox and the fox") + broken * 5) * 40:
        stream.add_token_and_take_text(token)
        sizes.append(len(stream.window))
    assert max(sizes) < 12 and len(sizes) >= 200


@pytest.mark.parametrize("kind", ["byte level", "byte fallback"])
def test_a_race_shows_the_text_of_all_its_tokens(kind):
    """Random models write random bytes, so most texts end inside a character. Both lanes show the same, one piece for a token."""
    pair = tiny_pair()  # over 256 tokens: the bytes, or words and most of the bytes
    pair = pair if kind == "byte level" else replace(pair, tokenizer=tokenizer_of(kind))
    prompt, unfinished = "the 🦊", 0
    for seed in range(6):
        race = Race(pair, Settings(prompt, ("vanilla", "tree"), temperature=0.8, seed=seed, max_new_tokens=9 + seed))
        for _, step in race.run():
            assert len(step.pieces) == len(step.burst)
        for trace in (lane.trace for lane in race.lanes):
            assert trace.text == behind(pair.tokenizer, trace.prompt_tokens, trace.tokens)
        unfinished += trace.text.endswith("\ufffd")
        assert race.result()["identical"] is True
    assert unfinished


def test_a_label_for_a_lone_byte_is_its_vocabulary_entry():
    pair = tiny_pair()
    first_byte = pair.tokenizer("🦊")["input_ids"][0]
    assert token_text_or_vocabulary_entry(pair.tokenizer, first_byte) == pair.tokenizer.convert_ids_to_tokens(
        first_byte
    )
    assert token_text_or_vocabulary_entry(pair.tokenizer, pair.tokenizer("a")["input_ids"][0]) == "a"
