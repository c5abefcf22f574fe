"""Chat: a prompt as a user's message in the target's chat template, behind the earlier turns of the chat.

The template is the tokenizer's own. transformers renders it in a sandbox, and encodes what a visitor or the model wrote as text: a
control token's name in it, such as `<|im_end|>`, stays letters.
"""

from transformers import PreTrainedTokenizerBase

from engine.models.pairs import LoadedPair
from engine.record.chat_turns import ChatTurns, build_chat_messages
from engine.record.parsing import format_value_for_error

STAND_IN = "\ue000\ue001\ue002"  # no letters and no spaces, so trimming and changing case leave it as it is
EARLIER = "\ue003\ue004\ue005"  # the same for every request and answer of earlier turns
SWITCH = "enable_thinking"  # as templates call it, those of Qwen3 first
OTHERWISE = "Choose raw (--raw), which sends the prompt without the template."


def render_prompt(pair: LoadedPair, prompt: str, turns: ChatTurns = ()) -> str:
    """What the target reads: the chat in its template, or the prompt itself where the pair does not chat.

    Raises `ValueError` as `render_chat` does, and for earlier turns of a pair that does not chat.
    """
    if pair.chat:
        return render_chat(pair.tokenizer, prompt, pair.system, pair.thinking, turns)
    refuse_turns_without_chat(pair, turns)
    return prompt


def tokenise_prompt(pair: LoadedPair, prompt: str, turns: ChatTurns = ()) -> list[int]:
    """The tokens of `render_prompt`. Raises `ValueError` as `tokenise_chat` does, and for earlier turns of a pair
    that does not chat.
    """
    if pair.chat:
        return tokenise_chat(pair.tokenizer, prompt, pair.system, pair.thinking, turns)
    refuse_turns_without_chat(pair, turns)
    return pair.tokenizer(prompt)["input_ids"]


def refuse_turns_without_chat(pair: LoadedPair, turns: ChatTurns) -> None:
    """Raises `ValueError` for earlier turns, of which a pair that does not chat has no use."""
    if turns:
        raise ValueError(f"The {pair.title} does not chat, so it takes no earlier turns. Leave them out.")


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    message: str,
    system: str = "",
    thinking: bool | None = None,
    turns: ChatTurns = (),
) -> str:
    """What the template makes of the message, up to where the reply begins. Raises `ValueError` when the template fails.

    `system` is a message before all others, "" for none. `thinking` is for templates with such a switch; None leaves it as the template
    has it. `turns` are the requests and answers before the message; a template may leave out how an earlier answer was thought.
    """
    try:
        return tokenizer.apply_chat_template(
            build_messages(message, system, turns),
            tokenize=False,
            add_generation_prompt=True,
            **thinking_arguments_of(thinking),
        )
    except Exception as error:  # a template is a program, and may fail in any way
        raise ValueError(
            f"The target's chat template failed: {format_value_for_error(str(error))}. {OTHERWISE}"
        ) from None


def tokenise_chat(
    tokenizer: PreTrainedTokenizerBase,
    message: str,
    system: str = "",
    thinking: bool | None = None,
    turns: ChatTurns = (),
) -> list[int]:
    """The tokens of `render_chat`. The template writes the only control tokens, that of the beginning included.

    Raises `ValueError` when the template fails, when it does not hold the message and every text of the turns once, and when this
    tokenizer cannot read a control token's name in one of them as text.
    """
    empty = render_chat(tokenizer, STAND_IN, system, thinking, [(EARLIER, EARLIER)] * len(turns))
    if (times := empty.count(STAND_IN)) != 1:
        raise ValueError(
            f"The target's chat template holds the prompt {times:,} times and must hold it once. {OTHERWISE}"
        )
    if (times := empty.count(EARLIER)) != 2 * len(turns):
        raise ValueError(
            f"The target's chat template holds {times:,} of the {2 * len(turns):,} requests and answers before the prompt. "
            "It must hold each of them once. Begin a new chat."
        )
    render_chat(tokenizer, message, system, thinking, turns)  # its own failures, before the tokenizer's
    try:
        tokens = tokenizer.apply_chat_template(
            build_messages(message, system, turns),
            add_generation_prompt=True,
            sanitize_control_tokens=True,
            **thinking_arguments_of(thinking),
        )["input_ids"]
    except ValueError:
        tokens = None
    written = tokenizer(empty, add_special_tokens=False)["input_ids"]
    if tokens is None or find_control_tokens(tokenizer, tokens) != find_control_tokens(tokenizer, written):
        raise ValueError(
            f"The {'chat' if turns else 'prompt'} holds a control token of the target's chat, which its tokenizer cannot read as text. "
            f"{'Begin a new chat, and take it out of the prompt.' if turns else 'Take it out of the prompt.'}"
        )
    return tokens


def build_messages(message: str, system: str = "", turns: ChatTurns = ()) -> list[dict[str, str]]:
    before = [{"role": "system", "content": system}] if system else []
    return [*before, *build_chat_messages(turns, message)]


def thinking_arguments_of(thinking: bool | None) -> dict[str, bool]:
    """Arguments of a template for this choice."""
    return {} if thinking is None else {SWITCH: thinking}


def refuse_unsupported_template_options(
    tokenizer: PreTrainedTokenizerBase, model_title: str, system: str, thinking: bool | None
) -> None:
    """Raises `ValueError` where the template takes no system message, or has no switch for thinking, and one is asked for."""
    if not (system or thinking is not None):
        return
    template = tokenizer.chat_template
    if not template:
        raise ValueError(f"{model_title} has no chat template, so it takes neither --system-prompt nor --thinking.")
    if system and (times := render_chat(tokenizer, "Hi", STAND_IN).count(STAND_IN)) != 1:
        raise ValueError(
            f"The chat template of {model_title} holds a system message {times} times and must hold it once. Leave --system-prompt out."
        )
    if system and find_control_tokens(tokenizer, tokenizer(system, add_special_tokens=False)["input_ids"]):
        raise ValueError("--system-prompt holds a control token of the target's chat. Take it out.")
    if thinking is not None and SWITCH not in str(template):
        raise ValueError(f"The chat template of {model_title} has no switch for thinking. Leave --thinking out.")


def find_control_tokens(tokenizer: PreTrainedTokenizerBase, tokens: list[int]) -> list[int]:
    """The control tokens among these, in order. A token for what the tokenizer does not know is none."""
    special = {token for token, what in tokenizer.added_tokens_decoder.items() if what.special}
    special.discard(tokenizer.unk_token_id)
    return [token for token in tokens if token in special]
