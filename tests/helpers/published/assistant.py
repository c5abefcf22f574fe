"""Small random Gemma 4 targets and their assistants, in the files that transformers writes, and what its candidate generator drafts."""

from pathlib import Path

import torch
import transformers as tr
from safetensors.torch import load_file
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator

from engine.nets.formats.assistant import share_target_rows_in_all_layers
from helpers.checkpoints import VOCAB, byte_tokenizer

WINDOW = 5
TEXT = {
    "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 2,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 256,
    "pad_token_id": None,
}
FEW_HEADS = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
OWN = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_kv_shared_layers": 3,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}
PLAIN = (tr.Gemma4ForCausalLM, tr.Gemma4AssistantForCausalLM)
UNIFIED = (tr.Gemma4UnifiedForCausalLM, tr.Gemma4UnifiedAssistantForCausalLM)
NO_PER_LAYER = {"hidden_size_per_layer_input": 0}
PAIRS = {  # what differs in the target's text, in both texts, and in the assistant
    "plain": (PLAIN, {}, {}, {}),
    "groups": (PLAIN, {}, FEW_HEADS, {"use_ordered_embeddings": True, "num_centroids": 257, "centroid_intermediate_top_k": 40}),
    "unified": (UNIFIED, NO_PER_LAYER | {"num_kv_shared_layers": 0}, FEW_HEADS, {}),
}  # fmt: skip


def random(model: tr.PreTrainedModel) -> tr.PreTrainedModel:
    """Norms are random too, so that a forgotten one shows."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.fill_(0.7)
        if name.endswith("token_ordering"):
            buffer.copy_(torch.randperm(len(buffer)))
    return model.eval()


def write(folder: Path, name: str) -> tuple[Path, Path]:
    """The folders of a target with its tokenizer and of its assistant, of one of `PAIRS`; written where they are not there yet."""
    target, own = folder / name / "target", folder / name / "drafters" / "assistant"
    if not own.exists():
        (kind, assistant), theirs, both, more = PAIRS[name]
        torch.manual_seed(0)
        model = random(kind(kind.config_class(**TEXT | theirs | both)))
        model.save_pretrained(target)
        byte_tokenizer().save_pretrained(target)
        config = assistant.config_class
        text = kind.config_class(**TEXT | OWN | both)
        random(
            assistant(share_target_rows_in_all_layers(config(text_config=text, backbone_hidden_size=32, **more)))
        ).save_pretrained(own)
    return target, own


def theirs(target: Path, own: Path, name: str) -> tuple[tr.PreTrainedModel, tr.PreTrainedModel]:
    """Both models in transformers' own modules."""
    kind, assistant = PAIRS[name][0]
    small = assistant(share_target_rows_in_all_layers(assistant.config_class.from_pretrained(own)))
    small.load_state_dict(load_file(own / "model.safetensors"), strict=False)
    small.tie_weights()
    return kind.from_pretrained(target).eval(), small.eval()


@torch.no_grad()
def chain(
    model: tr.PreTrainedModel, assistant: tr.PreTrainedModel, text: list[int], count: int
) -> tuple[list[int], torch.Tensor]:
    """By transformers' candidate generator: the tokens that it drafts behind the text, and its logits `[count, V]`.

    The target has read all but the last token and nothing else. Where no layer shares rows it returns none, and they are taken from the
    cache, as the last layer of each type wrote them.
    """
    assistant.generation_config.num_assistant_tokens = count
    settings = tr.GenerationConfig(max_length=128)
    generator = SinglePositionMultiTokenCandidateGenerator(assistant, model.get_input_embeddings(), settings)
    cache = tr.DynamicCache()  # of whole rows, windows or not
    out = model(
        torch.tensor([text[:-1]]), output_hidden_states=True, return_shared_kv_states=True, past_key_values=cache
    )
    if not model.config.num_kv_shared_layers:
        kinds = model.config.layer_types
        out.shared_kv_states = {kind: (cache.layers[at].keys, cache.layers[at].values) for at, kind in enumerate(kinds)}
    ids = torch.tensor([text])
    found, logits = generator.get_candidates(ids, {"attention_mask": torch.ones_like(ids)}, out, False, 0)
    return found[0, len(text) :].tolist(), logits[0]
