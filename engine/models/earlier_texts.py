"""Memory: texts that this process wrote, for drafters that copy from them. A pair has none unless a command gives it one."""

LARGEST_MEMORY = 100_000  # tokens, prompts included


class AnswerMemory:
    """Answers by their prompts. What exceeds `limit` tokens, prompts included, is dropped, the oldest first."""

    def __init__(self, limit: int = LARGEST_MEMORY):
        """Raises `ValueError` when the limit is below 1."""
        if limit < 1:
            raise ValueError(f"A memory must hold at least one token, got {limit:,}.")
        self.limit, self.held = limit, 0
        self.answers: dict[tuple[int, ...], list[int]] = {}  # the oldest first

    def answers_to_other_prompts(self, prompt: list[int]) -> list[list[int]]:
        """The answers to all other prompts, the oldest first. A race that is run again would else copy its own text."""
        return [answer for key, answer in self.answers.items() if key != tuple(prompt)]

    def remember_newest_answer(self, prompt: list[int], answer: list[int]) -> None:
        """Keep the answer to a prompt as the newest, in place of an earlier answer to the same prompt."""
        self.drop_answer(tuple(prompt))
        self.answers[tuple(prompt)] = list(answer)
        self.held += len(prompt) + len(answer)
        while self.held > self.limit:
            self.drop_answer(next(iter(self.answers)))

    def drop_answer(self, prompt: tuple[int, ...]) -> None:
        if prompt in self.answers:
            self.held -= len(prompt) + len(self.answers.pop(prompt))
