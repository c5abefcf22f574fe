"""Kinds: which models keep a state, and which of their layers do. Knows configurations; loads nothing."""

from transformers import PreTrainedConfig

# Types of layers by transformers' names. A hybrid layer has a state and attention side by side.
WITH_STATE = frozenset({"linear_attention", "conv", "hybrid"})
ATTENDING = frozenset({"full_attention", "hybrid"})
WITH_NEITHER = frozenset({"moe", "mlp"})
# tests/forward/test_states.py verifies trees with each of these model types.
TRIED = {
    "bamba",
    "falcon_h1",
    "granitemoehybrid",
    "lfm2",
    "lfm2_moe",
    "mamba2",
    "nemotron_h",
    "olmo_hybrid",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_next",
}


def keeps_state(config: PreTrainedConfig) -> bool:
    """Whether a model of this configuration has layers with a state, of a kind that was tried here."""
    return config.model_type in TRIED and bool(WITH_STATE & {*layer_types_of(config)})


def layer_types_of(config: PreTrainedConfig) -> list[str]:
    """The type of every layer, in order, by transformers' names."""
    return list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)


def count_layers_with_own_kv(config: PreTrainedConfig) -> int:
    """How many layers hold keys and values for every token of the text. The last ones may read those of others."""
    if not keeps_state(config):
        return config.num_hidden_layers - (getattr(config, "num_kv_shared_layers", None) or 0)
    return sum(kind in ATTENDING for kind in layer_types_of(config))
