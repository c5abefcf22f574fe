"""Small random checkpoints in the Hub's format, in a folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from engine.models import pairs

VOCAB = 257  # 256 bytes and one end-of-text token
IDS = list(range(40, 49))


def byte_tokenizer(swapped: bool = False) -> PreTrainedTokenizerFast:
    """A token for every byte. `swapped` exchanges the ids of "A" and "B", so tokens and size stay and only the map differs."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate(alphabet)}
    if swapped:
        vocab["A"], vocab["B"] = vocab["B"], vocab["A"]
    vocab["<|endoftext|>"] = 256
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 256,
}


def write(folder: Path, kind=LlamaForCausalLM, config=LlamaConfig, seed=0, swapped=False, half=False, **sizes):
    """A random checkpoint and its tokenizer in `folder`; returns the float32 model whose weights were saved."""
    torch.manual_seed(seed)
    model = kind(config(**{**SIZES, **sizes})).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:  # as far from 0 as trained weights, so that a wrong one shows
            torch.nn.init.normal_(parameter, std=0.1)
        if half:
            parameter.data = parameter.data.half().float()
    stored = {name: weight.half() if half else weight for name, weight in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=stored)
    byte_tokenizer(swapped).save_pretrained(folder)
    return model


def pair_of(target: Path, draft: Path | None = None, **rest) -> pairs.Pair:
    return pairs.Pair("test", "test pair", str(target), None if draft is None else str(draft), **rest)


def logits_of(runner) -> torch.Tensor:
    return runner.open_session(len(IDS)).forward(IDS, list(range(len(IDS))))[0]


@torch.no_grad()
def reference(model) -> torch.Tensor:
    return model(torch.tensor([IDS])).logits[0]
