"""Small random checkpoints of models that read more than text, as transformers writes them."""

from pathlib import Path

import torch
import transformers as tr

from engine.nets.formats.composite import text_tensor_name
from helpers.checkpoints import VOCAB, byte_tokenizer
from helpers.published import mtp
from helpers.published.mtp import STATES, rewrite, tensors_of

TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 256,
    "pad_token_id": None,
}
EVEN = {**TEXT, "head_dim": 8}  # of models whose heads share the hidden numbers
SEEN = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
EYES = {**SEEN, "num_key_value_heads": 2, "head_dim": 16, "position_embedding_size": 16}
SIGLIP = {**SEEN, "image_size": 28, "patch_size": 14}
QWEN = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
WINDOW = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
DELTA = {**STATES, "layer_types": ["linear_attention", "full_attention"]}
DELTA_ROPE = {"rope_parameters": MROPE | {"mrope_interleaved": True, "partial_rotary_factor": 0.5}}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
EXPERTS |= {"shared_expert_intermediate_size": 16}
LATENT = {
    **{"q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12},
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1},
    **{"n_group": 2, "topk_group": 1, "num_key_value_heads": 4},
}
GEMMA_4 = {
    **{"global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True},
    **{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB, "pad_token_id": 0},
}
# By the type of the whole model: its class, its text model's sizes, its vision model's, and more of its own
COMPOSITES: dict[str, tuple] = {
    "gemma3": (tr.Gemma3ForConditionalGeneration, TEXT | WINDOW, SIGLIP, {"mm_tokens_per_image": 4}),
    "gemma4": (tr.Gemma4ForConditionalGeneration, TEXT | WINDOW | GEMMA_4, EYES, {}),
    "idefics3": (tr.Idefics3ForConditionalGeneration, EVEN | {"model_type": "llama"}, SIGLIP, {}),
    "internvl": (tr.InternVLForConditionalGeneration, EVEN | {"model_type": "qwen2"}, SIGLIP, {}),
    "kimi_k25": (tr.Kimi_K25ForConditionalGeneration, EVEN | LATENT | {"model_type": "deepseek_v3"}, SEEN, {}),
    "lfm2_vl": (
        tr.Lfm2VlForConditionalGeneration,
        EVEN | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
        {**SEEN, "num_patches": 16, "patch_size": 14},
        {"projector_hidden_size": 32},
    ),
    "llava": (tr.LlavaForConditionalGeneration, EVEN | {"model_type": "llama"}, {**SIGLIP, "model_type": "clip_vision_model"}, {}),
    "mistral3": (
        tr.Mistral3ForConditionalGeneration,
        TEXT | {"model_type": "mistral", "sliding_window": None},
        SIGLIP | {"head_dim": 16},
        {},
    ),
    "qwen2_vl": (tr.Qwen2VLForConditionalGeneration, EVEN | {"rope_parameters": MROPE}, QWEN | {"embed_dim": 32}, {}),
    "qwen2_5_vl": (tr.Qwen2_5_VLForConditionalGeneration, EVEN | {"rope_parameters": MROPE}, QWEN | {"fullatt_block_indexes": [0]}, {}),
    "qwen3_vl": (
        tr.Qwen3VLForConditionalGeneration,
        TEXT | {"rope_parameters": MROPE | {"mrope_section": [4, 2, 2], "mrope_interleaved": True}},
        QWEN | {"deepstack_visual_indexes": [0]},
        {},
    ),
    "qwen3_5": (tr.Qwen3_5ForConditionalGeneration, TEXT | DELTA | DELTA_ROPE, QWEN, {}),
    "qwen3_5_moe": (tr.Qwen3_5MoeForConditionalGeneration, TEXT | DELTA | DELTA_ROPE | EXPERTS, QWEN, {}),
    "smolvlm": (tr.SmolVLMForConditionalGeneration, EVEN | {"model_type": "llama"}, SIGLIP, {}),
}  # fmt: skip

WITH_MTP = {"qwen3_5": "Qwen3.5", "kimi_k25": "DeepSeek-V3"}  # and what `helpers.published.mtp` calls the text model


def write(folder: Path, name: str, tied: bool = False, **more) -> tr.PreTrainedModel:
    """A checkpoint of that type and its tokenizer; returns the whole model. Norms are random too, so that a forgotten one shows."""
    kind, text, seen, own = COMPOSITES[name]
    torch.manual_seed(0)
    config = kind.config_class(text_config={**text}, vision_config={**seen}, tie_word_embeddings=tied, **own, **more)
    config.architectures = [kind.__name__]
    model = kind(config).eval()
    for where, parameter in model.named_parameters():
        if not where.endswith(("A_log", "dt_bias")):
            torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    model.tie_weights()
    model.save_pretrained(folder)
    rewrite(folder, as_published(tensors_of(folder)))
    byte_tokenizer().save_pretrained(folder)
    return model


def as_published(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Kimi's vision model has blocks in its files, and transformers 5.23 then writes those of its text model as blocks too."""
    return {
        name.replace("language_model.model.blocks.", "language_model.model.layers."): each
        for name, each in tensors.items()
    }


def write_with_mtp(folder: Path, work: Path, name: str) -> tr.PreTrainedModel:
    """A checkpoint as such models are published: the text model of `helpers.published.mtp`, a vision model, and an MTP layer.

    Returns the whole model. `work` is a folder for the text model alone.
    """
    kind, _, seen, own = COMPOSITES[name]
    mtp.write(work, *mtp.TARGETS[WITH_MTP[name]])
    text, config = tensors_of(work), tr.AutoConfig.from_pretrained(work)
    whole = kind.config_class(text_config=config.to_dict(), vision_config={**seen}, tie_word_embeddings=False, **own)
    whole.architectures = [kind.__name__]
    torch.manual_seed(0)
    kind(whole).save_pretrained(folder)
    stored = as_published(tensors_of(folder))
    inside = {text_tensor_name(each): each for each in stored}
    ahead = inside["model.norm.weight"].removesuffix("norm.weight")
    for each, tensor in text.items():
        layer = ahead + each.removeprefix("model.") if each.startswith("model.") else each
        assert each in inside or each.startswith(("mtp.", f"model.layers.{mtp.LAYERS}."))
        stored[inside.get(each, layer)] = tensor
    rewrite(folder, stored)
    byte_tokenizer().save_pretrained(folder)
    return kind.from_pretrained(folder, attn_implementation="sdpa").eval()
