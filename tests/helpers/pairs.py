"""Random tiny pairs: a byte tokenizer, a Llama of a few thousand weights, untrained drafters; constraints on their texts; and targets
whose session has a prompt committed."""

from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.forward.runner import Runner
from engine.forward.session import Session
from engine.lab.train.learned import RECIPES, drafter_config_for
from engine.models.bigram import BigramTable
from engine.models.constraint import compile_pair_constraint
from engine.models.pairs import LoadedPair, Pair
from engine.record.calibration import Calibration
from engine.sampling import Sampling
from engine.target import Target
from helpers.published.mtp import untrained

PROMPT = [5, 80, 33, 12, 200, 41, 7]
STOP = 0  # the tiny pair's stop token
NAMES = (
    'json:{"type": "object", "properties": {"name": {"enum": ["Tom", "Tim", "Lily"]}, '
    '"age": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["name", "age"], "additionalProperties": false}'
)
LETTERS = "regex:[ab]{2,6}(xyz|xyw)[0-9]{1,3}"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, 256 in all."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def spoken_pair(**more: Any) -> SimpleNamespace:
    """What a page reads of a pair before anything runs: words alone, no model."""
    said: dict[str, Any] = {
        "pair": Pair(name="here", title="a pair", target="", draft=""),
        "title": "a pair",
        "hardware": "a machine",
        "dtype": "fp32",
        "context": 2048,
        "target": SimpleNamespace(
            forward_kind="compiled",
            device=torch.device("cpu"),
            cache_row_bytes=1000,
            state_bytes_per_text=0,
            state_bytes_per_node=0,
        ),
        "draft": None,
        "calibration": Calibration(),
        "remote": None,
        "chat": False,
        "system": "",
        "thinking": None,
        "has": lambda part: True,
    }
    return SimpleNamespace(**(said | more))


def tiny_llama(
    seed: int, layers: int = 2, kv_heads: int = 2, scale: float = 3.0, context: int = 160
) -> LlamaForCausalLM:
    """A random Llama over 256 tokens; `scale` sharpens its logits so that its distributions differ clearly."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    model.lm_head.weight.data.mul_(scale / 0.16)
    return model.eval()


def tiny_pair(own: bool = True, stop_ids: frozenset[int] = frozenset(), same: bool = False) -> LoadedPair:
    """A random pair with untrained drafters; with `same` the draft is the target itself, so that long paths are accepted."""
    target = Runner(tiny_llama(0), use_custom_forward=own)
    ids = torch.arange(256).repeat(4)
    learned = {
        name: recipe.build_untrained_net(target.model, drafter_config_for(name, target.model), ids)
        for name, recipe in RECIPES.items()
    }
    return LoadedPair(
        pair=Pair(name="tiny", title="tiny random pair", target="", draft=""),
        tokenizer=byte_tokenizer(),
        target=target,
        draft=target if same else Runner(tiny_llama(1, layers=1)),
        bigram=BigramTable.build_from_token_stream(
            torch.randint(0, 256, (2000,), generator=torch.Generator().manual_seed(0)), 256, follower_count=8
        ),
        hardware="test machine",
        dtype="fp32",
        context=160,
        stop_ids=stop_ids,
        learned={name: net.eval().requires_grad_(False) for name, net in learned.items()}
        | {"mtp": untrained(target.model)},
        calibration=Calibration(ranks={"medusa": [[0.5, 0.2, 0.1], [0.4, 0.2, 0.1], [0.3, 0.1, 0.1]]}),
    )


def bound_pair(**how) -> LoadedPair:
    return tiny_pair(stop_ids=frozenset({STOP}), **how)


def bound(pair: LoadedPair, constraint: str, guesses: str = "masked", **how) -> Sampling:
    return Sampling(**how, constraint=compile_pair_constraint(pair, constraint, guesses))


def committed(runner: Runner, **options) -> Target:
    target = Target(runner, 64, options.pop("features", False))
    target.session = Session(runner, 96, bool(target.session.taps), **options)
    target.prefill_and_return_features(PROMPT)
    return target
