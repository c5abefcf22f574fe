"""Text: what tokens spell, in whole characters across bursts, and a label for a single token."""

import re

from transformers import PreTrainedTokenizerBase

from engine.record.trace import first_divergence

BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")  # how a vocabulary with byte fallback names a byte
BROKEN = "\ufffd"  # what a decoder shows for bytes that are no character, or not yet one


class TokenTextStream:
    """Turns tokens into text as they come. The pieces and the `flush_held_text` join to what the decoder makes of all tokens at once.

    Nothing that could still change is given out. That is the last character while its bytes are incomplete. With byte fallback it is a
    whole run of bytes, because one bad byte makes the decoder replace them all.

    Only the last few tokens are decoded again. They begin at the last settled place but one, because some decoders treat a text's first
    token differently, for example by dropping its space.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt_ids: list[int]):
        """The prompt's own text is not given out, except from where later tokens change it."""
        self.backend = tokenizer.backend_tokenizer
        decoder, added = self.backend.decoder, self.backend.get_added_tokens_decoder()
        self.bytes_fall_back = decoder is not None and decoder.decode(["<0x41>"]) == "A"
        self.unseen = {token for token, what in added.items() if what.special}
        self.window = [token for token in prompt_ids if token not in self.unseen]
        self.text = self.decode_window()  # of the window, when it was last decoded
        self.held = 0  # characters at the end of `text` that were not given out
        self.settled = 0  # tokens of the window up to the last settled place
        self.seen = len(self.window)  # tokens of the window when it was last decoded

    def add_token_and_take_text(self, token: int) -> str:
        """The piece of text that this token settles, often its own."""
        name = None if token in self.unseen else self.backend.id_to_token(token)
        if name is None:
            return ""
        self.window.append(token)
        return (
            ""
            if self.bytes_fall_back and BYTE.fullmatch(name)
            else self.take_settled_piece(hold_incomplete_character=True)
        )

    def flush_held_text(self) -> str:
        """What was held back, as the decoder shows it where the text ends."""
        return self.take_settled_piece(hold_incomplete_character=False)

    def take_settled_piece(self, hold_incomplete_character: bool) -> str:
        text = self.decode_window()
        same = first_divergence(self.text, text)
        shown = min(len(self.text) - self.held, len(text) if same is None else same)
        until = max(shown, len(text) - (hold_incomplete_character and text.endswith(BROKEN)))
        self.held = len(text) - until
        grown = len(text) > len(self.text) and text.startswith(self.text)
        self.text, piece = text, text[shown:until]
        if grown:  # so the last token that was decoded before ended a character
            del self.window[: self.settled]
            self.settled = self.seen - self.settled
            self.text = self.decode_window()
        self.seen = len(self.window)
        return piece

    def decode_window(self) -> str:
        return self.backend.decode(self.window, skip_special_tokens=True)


def token_text_or_vocabulary_entry(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """One token's name in a picture: its text, or its vocabulary entry when it is special or no whole character."""
    text = tokenizer.decode([token])
    return tokenizer.convert_ids_to_tokens(token) if BROKEN in text or not text else text
