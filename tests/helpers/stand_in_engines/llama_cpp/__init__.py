"""A stand-in for llama-cpp-python: it asks for a GGUF file and answers as the package does. It computes nothing and writes `WRITES`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

WRITES: list[int] = []  # what every model writes, token by token
ASKED: list[tuple[str, int]] = []  # by call: the file, and guesses a round


class Llama:
    def __init__(
        self, model_path: str, *, n_ctx: int, n_threads: int, n_threads_batch: int, verbose: bool, **more: Any
    ):
        with Path(model_path).open("rb") as file:
            assert file.read(4) == b"GGUF" and not more.keys() - {"logits_all"}
        self.file, self.draft_model, self.read = Path(model_path).name, None, 0
        self.drafts = more.get("logits_all", False)

    def reset(self) -> None:
        self.read = 0

    def generate(
        self, tokens: list[int], *, top_k: int, top_p: float, min_p: float, temp: float, repeat_penalty: float
    ) -> Iterator[int]:
        assert self.read == 0, "what was read before would cost nothing"
        guesses = self.draft_model.num_pred_tokens if isinstance(self.draft_model, LlamaPromptLookupDecoding) else 0
        assert self.drafts == bool(guesses)
        ASKED.append((self.file, guesses))
        self.read = len(tokens)
        yield from WRITES
