"""Two saved checkpoints of different families."""

import socket

import pytest
from huggingface_hub import constants
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
)

from helpers.checkpoints import write


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """A target in float16 as the embedded one ships, with a tied head and two stop tokens; and the saved model."""
    folder = tmp_path_factory.mktemp("models") / "target"
    model = write(folder, half=True, tie_word_embeddings=True)
    model.generation_config.eos_token_id = [256, 10]
    model.generation_config.save_pretrained(folder)
    return folder, model


@pytest.fixture(scope="session")
def qwen(tmp_path_factory):
    """A draft of another family with padded logits and a smaller context window."""
    folder = tmp_path_factory.mktemp("models") / "draft"
    sizes = {"num_hidden_layers": 1, "vocab_size": 320, "max_position_embeddings": 96}
    return folder, write(folder, Qwen2ForCausalLM, Qwen2Config, seed=1, **sizes)


@pytest.fixture
def no_network(monkeypatch):
    """Every attempt to connect is an error, recorded so that swallowing it does not help."""
    attempts = []

    def refuse(self, address, *rest):
        attempts.append(address)
        raise OSError(f"A test tried to reach {address}.")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # nothing but the loader itself may prevent it
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: refuse(None, host))
    return attempts
