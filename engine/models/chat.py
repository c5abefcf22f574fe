"""Chat: a prompt as a user's message in the target's chat template.

The template is the tokenizer's own. transformers renders it in a sandbox, and encodes what the visitor wrote as text: a control token's
name in it, such as `<|im_end|>`, stays letters.
"""

from transformers import PreTrainedTokenizerBase

from engine.models.pairs import LoadedPair
from engine.record.parsing import shown

STAND_IN = "\ue000\ue001\ue002"  # no letters and no spaces, so trimming and changing case leave it as it is
OTHERWISE = "Choose raw (--raw), which sends the prompt without the template."


def prompt_text(pair: LoadedPair, prompt: str) -> str:
    """What the target reads: the prompt in the chat template, or the prompt itself where the pair does not chat."""
    return chat_text(pair.tokenizer, prompt) if pair.chat else prompt


def prompt_tokens(pair: LoadedPair, prompt: str) -> list[int]:
    """The tokens of `prompt_text`. Raises `ValueError` as `chat_tokens` does."""
    return chat_tokens(pair.tokenizer, prompt) if pair.chat else pair.tokenizer(prompt)["input_ids"]


def chat_text(tokenizer: PreTrainedTokenizerBase, message: str) -> str:
    """What the template makes of the message, up to where the reply begins. Raises `ValueError` when the template fails."""
    try:
        return tokenizer.apply_chat_template(conversation(message), tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program, and may fail in any way
        raise ValueError(f"The target's chat template failed: {shown(str(error))}. {OTHERWISE}") from None


def chat_tokens(tokenizer: PreTrainedTokenizerBase, message: str) -> list[int]:
    """The tokens of `chat_text`. The template writes the only control tokens, that of the beginning included.

    Raises `ValueError` when the template fails, when it does not hold the message once, and when this tokenizer cannot read a control
    token's name in the message as text.
    """
    empty = chat_text(tokenizer, STAND_IN)
    if (times := empty.count(STAND_IN)) != 1:
        raise ValueError(
            f"The target's chat template holds the prompt {times:,} times and must hold it once. {OTHERWISE}"
        )
    chat_text(tokenizer, message)  # its own failures, before the tokenizer's
    try:
        tokens = tokenizer.apply_chat_template(
            conversation(message), add_generation_prompt=True, sanitize_control_tokens=True
        )["input_ids"]
    except ValueError:
        tokens = None
    written = tokenizer(empty, add_special_tokens=False)["input_ids"]
    if tokens is None or controls(tokenizer, tokens) != controls(tokenizer, written):
        raise ValueError(
            "The prompt holds a control token of the target's chat, which its tokenizer cannot read as text. Take it out of the prompt."
        )
    return tokens


def conversation(message: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": message}]


def controls(tokenizer: PreTrainedTokenizerBase, tokens: list[int]) -> list[int]:
    """The control tokens among these, in order. A token for what the tokenizer does not know is none."""
    special = {token for token, what in tokenizer.added_tokens_decoder.items() if what.special}
    special.discard(tokenizer.unk_token_id)
    return [token for token in tokens if token in special]
