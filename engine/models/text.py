"""Text: what tokens spell, in whole characters across bursts, and a label for a single token. Knows the tokenizer; knows no model."""

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase


class TextStream:
    """Turns tokens into text as they come. A character whose bytes are incomplete is held back until they are there."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: list[int]):
        self.backend = tokenizer.backend_tokenizer
        self.stream = DecodeStream(ids=prompt, skip_special_tokens=True)

    def add(self, token: int) -> str:
        return self.stream.step(self.backend, token) or ""


def label(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """One token's name in a picture: its text, or its vocabulary entry when it is special or no whole character."""
    text = tokenizer.decode([token])
    return tokenizer.convert_ids_to_tokens(token) if "\ufffd" in text or not text else text
