"""Repetition: whether a text repeats itself, so that guessing it is easy. Knows tokens; knows no model.

A run of tokens counts as repeated when the same run stood earlier in the prompt or the text. Of the four recorded races' texts
at T = 0 a fifth to two thirds of the runs are repeated, and of the one at T = 0.8 none. The limit below was set by these five texts.
"""

from collections.abc import Sequence

RUN = 8  # tokens in a row; with the embedded vocabulary about six words
OFTEN = 0.15  # from this share of repeated runs on, a text repeats itself
LEAST = 4 * RUN  # tokens; shorter texts tell nothing


def share_of_repeated_token_runs(prompt_tokens: Sequence[int], tokens: Sequence[int]) -> float:
    """Of the runs of `RUN` tokens that end in the text, the share that stood earlier in prompt and text; 0 without any."""
    whole = [*prompt_tokens, *tokens]
    seen: set[tuple[int, ...]] = set()
    repeated = count = 0
    for end in range(RUN, len(whole) + 1):
        run = tuple(whole[end - RUN : end])
        if end > len(prompt_tokens):
            repeated, count = repeated + (run in seen), count + 1
        seen.add(run)
    return repeated / count if count else 0.0


def is_text_repetitive(prompt_tokens: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether the text of these tokens repeats itself, or its prompt, often enough to make guessing easy."""
    return len(tokens) >= LEAST and share_of_repeated_token_runs(prompt_tokens, tokens) >= OFTEN
