"""Sizes: what a model's configuration says under the names of its family."""

from transformers import PreTrainedConfig

# These have a key and a value for every query head, and no name for their number.
ALL_HEADS = frozenset({"gpt2", "gpt_neox", "opt"})
# The cache of these holds a latent row as key and a rotated key as value, one each for all heads. Attention widens them to heads.
LATENT = frozenset({"deepseek_v3", "glm4_moe_lite"})

UNBOUNDED = 2**20  # tokens that a text may have where the model's configuration names no limit


def max_context_of(config: PreTrainedConfig) -> int:
    """How many tokens a text may have. A model without positions names no limit."""
    return getattr(config, "max_position_embeddings", None) or UNBOUNDED


def head_dim_of(config: PreTrainedConfig) -> int:
    """How many numbers a row of the cache has for a head, or for a latent row's key. Where layers differ, this is the widest."""
    if config.model_type in LATENT:
        return max(config.kv_lora_rank, config.qk_rope_head_dim)
    return max(
        getattr(each, "head_dim", None) or each.hidden_size // each.num_attention_heads
        for each in configs_by_layer(config)
    )


def configs_by_layer(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """The configuration of every layer where they differ, as Gemma 4's do in heads; else the one of all."""
    return list(config.per_layer_config) if config.is_heterogeneous else [config]


def kv_heads_of(config: PreTrainedConfig) -> int | None:
    """How many keys and values a layer caches for a token, None where these are no plain heads; the most, where layers differ."""
    if hasattr(config, "kv_lora_rank"):
        return 1 if config.model_type in LATENT else None
    if config.model_type == "falcon":  # its newer architecture repeats keys and values before they are cached
        if config.new_decoder_architecture:
            return config.num_attention_heads
        return 1 if config.multi_query else config.num_kv_heads
    if config.model_type in ALL_HEADS:
        return config.num_attention_heads
    return max(getattr(each, "num_key_value_heads", None) or 0 for each in configs_by_layer(config)) or None


def mlp_width_of(config: PreTrainedConfig) -> int:
    """The width of an MLP."""
    names = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
    return next((size for name in names if (size := getattr(config, name, None))), 4 * config.hidden_size)
