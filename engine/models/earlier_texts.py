"""Memory: texts that this process wrote, for drafters that copy from them. A pair has none unless a command gives it one."""

LARGEST_MEMORY = 100_000  # tokens, prompts included


class AnswerMemory:
    """Answers by their prompts. What exceeds `max_tokens` tokens, prompts included, is dropped, the oldest first."""

    def __init__(self, max_tokens: int = LARGEST_MEMORY):
        """Raises `ValueError` when the limit is below 1."""
        if max_tokens < 1:
            raise ValueError(f"A memory must hold at least one token, got {max_tokens:,}.")
        self.max_tokens, self.held = max_tokens, 0
        self.answers: dict[tuple[int, ...], list[int]] = {}  # the oldest first

    def answers_to_other_prompts(self, prompt_ids: list[int]) -> list[list[int]]:
        """The answers to all other prompts, the oldest first. A race that is run again would else copy its own text."""
        return [answer for key, answer in self.answers.items() if key != tuple(prompt_ids)]

    def remember_newest_answer(self, prompt_ids: list[int], answer_tokens: list[int]) -> None:
        """Keep the answer to a prompt as the newest, in place of an earlier answer to the same prompt."""
        self.drop_answer(tuple(prompt_ids))
        self.answers[tuple(prompt_ids)] = list(answer_tokens)
        self.held += len(prompt_ids) + len(answer_tokens)
        while self.held > self.max_tokens:
            self.drop_answer(next(iter(self.answers)))

    def drop_answer(self, prompt_ids: tuple[int, ...]) -> None:
        if prompt_ids in self.answers:
            self.held -= len(prompt_ids) + len(self.answers.pop(prompt_ids))
