"""A stand-in for OpenVINO GenAI: it loads and writes folders as the package does. It computes nothing and writes `WRITES`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from openvino import Tensor

WRITES: list[int] = []  # what every pipeline writes, token by token
ASKED: list[tuple[str, int]] = []  # by call: the folder, and guesses a round
MODEL = "openvino_model.xml"


class GenerationConfig:
    __slots__ = (
        "do_sample",
        "eos_token_id",
        "max_new_tokens",
        "max_ngram_size",
        "num_assistant_tokens",
        "stop_token_ids",
        "temperature",
        "top_p",
    )


def draft_model(models_path: str, device: str, **more: Any) -> str:
    assert (Path(models_path) / MODEL).is_file() and device == "CPU"
    return models_path


class LLMPipeline:
    def __init__(self, models_path: str, device: str, enable_save_ov_model: bool = False, **more: Any):
        path = Path(models_path)
        if enable_save_ov_model:
            with path.open("rb") as file:
                assert file.read(4) == b"GGUF"
            (path.parent / MODEL).write_text("a model")
        else:
            assert (path / MODEL).is_file()
        self.folder, self.guesses = path.name, more.keys() & {"draft_model", "prompt_lookup"}

    def generate(self, inputs: Tensor, config: GenerationConfig) -> SimpleNamespace:
        guesses = getattr(config, "num_assistant_tokens", 0)
        assert bool(guesses) == bool(self.guesses)
        ASKED.append((self.folder, guesses))
        ends = [at for at, token in enumerate(WRITES, 1) if token in config.stop_token_ids]
        return SimpleNamespace(tokens=[WRITES[: min([config.max_new_tokens, *ends])]])
