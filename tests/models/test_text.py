"""Text of a stream of tokens: no half characters, nothing taken back, and a label for every token."""

from engine.models.text import TextStream, label
from helpers.pairs import tiny_pair


def test_text_never_shows_half_a_character_and_never_takes_one_back():
    """Byte tokens: the emoji needs four of them, which come one burst at a time."""
    pair = tiny_pair()
    text = "a🦊é猫!"
    stream, pieces = TextStream(pair.tokenizer, [1]), []
    for token in pair.tokenizer(text)["input_ids"]:
        pieces.append(stream.add(token))
    assert "".join(pieces) == text
    assert pieces[1:5] == ["", "", "", "🦊"]
    assert all("\ufffd" not in piece for piece in pieces)


def test_a_label_for_a_lone_byte_is_its_vocabulary_entry():
    pair = tiny_pair()
    first_byte = pair.tokenizer("🦊")["input_ids"][0]
    assert label(pair.tokenizer, first_byte) == pair.tokenizer.convert_ids_to_tokens(first_byte)
    assert label(pair.tokenizer, pair.tokenizer("a")["input_ids"][0]) == "a"
