"""Every family that the loader names: a tree's logits are plain decoding's, and races are lossless."""

import re
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
import torch
import transformers as tr

from engine.forward.session import Session
from engine.models import loading, refusals
from engine.race import Race, Settings
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from engine.target import Target
from engine.tree import DraftTree
from helpers.checkpoints import VOCAB, byte_tokenizer, logits_of, pair_of, reference
from helpers.families import daily

CONTEXT = 32  # tokens: a prompt and two trees, and a race over many times the windows
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
SHARED = {"intermediate_size": 64, "num_key_value_heads": 2}
MIXED = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12}
GEMMA_4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 5.0,
    "use_bidirectional_attention": "vision",
}
SHARING = {  # the last two layers read the keys and values of those before them, and every layer the tokens themselves
    "num_hidden_layers": 4,
    "layer_types": MIXED["layer_types"] * 2,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCAB,
    "attention_k_eq_v": False,
}
GEMMA_4_EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
QWEN_MIXED = {"use_sliding_window": True, "sliding_window": 3, "layer_types": MIXED["layer_types"]}
CHECKED = {  # variant -> the loader's word for the family, model class, configuration
    "llama": ("Llama", tr.LlamaForCausalLM, SHARED),
    "qwen2": ("Qwen2", tr.Qwen2ForCausalLM, SHARED),
    "qwen3": ("Qwen3", tr.Qwen3ForCausalLM, SHARED | {"head_dim": 16}),
    "mistral": ("Mistral", tr.MistralForCausalLM, SHARED | {"sliding_window": None}),
    "gemma": ("Gemma", tr.GemmaForCausalLM, SHARED | {"head_dim": 32}),
    "phi3": ("Phi-3", tr.Phi3ForCausalLM, SHARED),
    "olmo2": ("OLMo 2", tr.Olmo2ForCausalLM, SHARED),
    "smollm3": ("SmolLM3", tr.SmolLM3ForCausalLM, SHARED),
    "granite": ("Granite", tr.GraniteForCausalLM, SHARED),
    "mixtral": ("Mixtral", tr.MixtralForCausalLM, SHARED | {"num_local_experts": 4, "sliding_window": None}),
    # With a window of 3 a tree's leaf no longer sees the prompt, nor even the root.
    "mistral, window": ("Mistral", tr.MistralForCausalLM, SHARED | {"sliding_window": 3}),
    "mixtral, window": ("Mixtral", tr.MixtralForCausalLM, SHARED | {"num_local_experts": 4, "sliding_window": 3}),
    "phi3, window": ("Phi-3", tr.Phi3ForCausalLM, SHARED | {"sliding_window": 3}),
    "qwen2, window": ("Qwen2", tr.Qwen2ForCausalLM, SHARED | QWEN_MIXED),
    "qwen3, window": ("Qwen3", tr.Qwen3ForCausalLM, SHARED | QWEN_MIXED | {"head_dim": 16}),
    "smollm3, window": ("SmolLM3", tr.SmolLM3ForCausalLM, SHARED | QWEN_MIXED | {"no_rope_layers": [0, 1]}),
    "gemma2, window": (
        "Gemma 2",
        tr.Gemma2ForCausalLM,
        SHARED | MIXED | {"head_dim": 16, "attn_logit_softcapping": 0.5},
    ),
    "gemma2, window as wide as the context": (
        "Gemma 2",
        tr.Gemma2ForCausalLM,
        SHARED | MIXED | {"head_dim": 16, "attn_logit_softcapping": 0.5, "sliding_window": CONTEXT},
    ),
    "gemma3, window": ("Gemma 3", tr.Gemma3ForCausalLM, SHARED | MIXED | {"head_dim": 16}),
    "gemma3, capped": (
        "Gemma 3",
        tr.Gemma3ForCausalLM,
        SHARED | MIXED | {"head_dim": 16, "attn_logit_softcapping": 0.5},
    ),
    "gemma4, window": ("Gemma 4", tr.Gemma4ForCausalLM, SHARED | MIXED | GEMMA_4 | SHARING),
    "gemma4, experts, window": ("Gemma 4", tr.Gemma4ForCausalLM, SHARED | MIXED | GEMMA_4 | GEMMA_4_EXPERTS),
    "gemma4, unified, window": ("Gemma 4", tr.Gemma4UnifiedForCausalLM, SHARED | MIXED | GEMMA_4),
    "gpt_oss, window": ("gpt-oss", tr.GptOssForCausalLM, SHARED | MIXED | {"head_dim": 16, "num_local_experts": 4}),
    "ministral, window": ("Ministral", tr.MinistralForCausalLM, SHARED | MIXED | {"head_dim": 16}),
    "starcoder2, window": ("StarCoder2", tr.Starcoder2ForCausalLM, SHARED | {"sliding_window": 3}),
    "qwen2_moe, window": ("Qwen2-MoE", tr.Qwen2MoeForCausalLM, SHARED | EXPERTS | QWEN_MIXED),
    "qwen3_moe, window": (
        "Qwen3-MoE",
        tr.Qwen3MoeForCausalLM,
        SHARED | EXPERTS | {"use_sliding_window": True, "sliding_window": 3, "head_dim": 16},
    ),
    "cohere2, window": ("Command R7B", tr.Cohere2ForCausalLM, SHARED | MIXED | {"logit_scale": 1.0}),
    "exaone4, window": ("EXAONE 4", tr.Exaone4ForCausalLM, SHARED | MIXED),
    "olmo3, window": ("OLMo 3", tr.Olmo3ForCausalLM, SHARED | MIXED),
    "gpt2": ("GPT-2", tr.GPT2LMHeadModel, {}),
    "gpt2, scaled by layer": ("GPT-2", tr.GPT2LMHeadModel, {"scale_attn_by_inverse_layer_idx": True}),
    "gpt_neox": ("GPT-NeoX", tr.GPTNeoXForCausalLM, {"intermediate_size": 64}),
    "gpt_neox, in sequence": (
        "GPT-NeoX",
        tr.GPTNeoXForCausalLM,
        {"intermediate_size": 64, "use_parallel_residual": False},
    ),
    "opt": ("OPT", tr.OPTForCausalLM, {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "opt, norm behind": (
        "OPT",
        tr.OPTForCausalLM,
        {"ffn_dim": 64, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    ),
    "falcon, one key head": ("Falcon", tr.FalconForCausalLM, {}),
    "falcon, all heads": ("Falcon", tr.FalconForCausalLM, {"multi_query": False, "parallel_attn": False, "bias": True}),
    "falcon, new": ("Falcon", tr.FalconForCausalLM, {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "glm4_moe": ("GLM-4 MoE", tr.Glm4MoeForCausalLM, SHARED | ROUTED | {"head_dim": 16}),
    "deepseek_v3": ("DeepSeek-V3", tr.DeepseekV3ForCausalLM, {"intermediate_size": 64} | ROUTED | LATENT),
    "deepseek_v3, wide keys": (
        "DeepSeek-V3",
        tr.DeepseekV3ForCausalLM,
        {"intermediate_size": 64} | ROUTED | LATENT | {"kv_lora_rank": 6, "q_lora_rank": None},
    ),
    "glm4_moe_lite": ("GLM-4 MoE Lite", tr.Glm4MoeLiteForCausalLM, {"intermediate_size": 64} | ROUTED | LATENT),
    "mellum": ("Mellum", tr.MellumForCausalLM, SHARED | EXPERTS | {"head_dim": 16}),
    "mellum, window": ("Mellum", tr.MellumForCausalLM, SHARED | EXPERTS | MIXED | {"head_dim": 16}),
}
DYNAMIC = {
    "full_attention": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
PROMPT = [5, 80, 33, 12, 200, 41, 7]
NEW = [name for name, (family, *_) in CHECKED.items() if family in ("GPT-2", "GPT-NeoX", "OPT", "Falcon")]
WINDOWED = [name for name in CHECKED if name.endswith("window")]
EAGER = ("gemma2, window", "gemma2, window as wide as the context", "gemma3, capped", "gpt_oss, window")
OFTEN = [
    "gpt2", "gpt_neox", "opt", "falcon, one key head", "falcon, new", "glm4_moe", "deepseek_v3", "deepseek_v3, wide keys",
    "glm4_moe_lite", "mellum",
]  # fmt: skip


@cache
def random_model(name: str) -> tr.PreTrainedModel:
    """A random model in transformers' own modules, not to be changed. Norms and biases are random too, so that a forgotten one
    shows."""
    _, kind, sizes = CHECKED[name]
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**SIZES, **sizes})).eval()
    if name in EAGER:  # sdpa would leave out their soft caps and sinks
        model.set_attn_implementation("eager")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder of a family's checkpoint, made when it is first asked for."""
    place = tmp_path_factory.mktemp("families")

    def of(name: str):
        path = place / name
        if not path.exists():
            random_model(name).save_pretrained(path)
            byte_tokenizer().save_pretrained(path)
        return path

    return of


@pytest.fixture(scope="module")
def loaded(folder):
    """Returns a family's checkpoint as a target that is its own draft, loaded when it is first asked for."""

    @cache
    def of(name: str):
        pair = loading.load_pair_anew(pair_of(folder(name)), device="cpu")
        return replace(pair, draft=pair.target)

    return of


def random_tree(root: int, seed: int, nodes: int = 12) -> DraftTree:
    draw, tree = torch.Generator().manual_seed(seed), DraftTree.from_root_token(root)
    for _ in range(nodes):
        parent, token = (int(torch.randint(high, (1,), generator=draw)) for high in (len(tree), VOCAB - 1))
        if token not in [tree.tokens[each] for each in range(1, len(tree)) if tree.parents[each] == parent]:
            tree.add(parent, token, 1.0, 1.0)
    return tree


def path_to(tree: DraftTree, node: int) -> list[int]:
    """The nodes from the root's child to `node`."""
    found = []
    while node:
        found.insert(0, node)
        node = tree.parents[node]
    return found


@torch.no_grad()
def farthest(target: Target, model: tr.PreTrainedModel) -> float:
    """The largest difference of a node's logits from the unchanged model's behind the node's text, over two trees in a row."""
    text, root, worst = list(PROMPT), 9, 0.0
    target.prefill_and_return_features(text)
    for seed in range(2):
        tree = random_tree(root, seed)
        logits, _ = target.verify(tree)
        for leaf in set(range(len(tree))) - set(tree.parents):
            path = path_to(tree, leaf)
            written = [*text, root, *(tree.tokens[each] for each in path)]
            plain = model(torch.tensor([written])).logits[0, len(text) :]
            worst = max(worst, (logits[[0, *path]].float() - plain.float()).abs().max().item())
        path = path_to(tree, max(range(len(tree)), key=lambda node: tree.depth[node]))
        target.commit(path)
        text, root = [*text, root, *(tree.tokens[each] for each in path)], 100 + seed
    return worst


def test_the_loader_names_the_families_that_are_checked_here():
    assert re.split(", | and ", refusals.FAMILIES) == list(dict.fromkeys(family for family, *_ in CHECKED.values()))
    assert not any(
        refusals.explain_why_unable_to_draft(random_model(name).config) for name in CHECKED
    )  # all may draft, too


@pytest.mark.parametrize("name", CHECKED)
def test_a_trees_logits_are_those_of_plain_decoding(name, loaded):
    """A mask that is ignored, or a position that is counted by rows, is off by tenths."""
    assert farthest(Target(loaded(name).target, 64, features=True), random_model(name)) < 2e-5


@pytest.mark.parametrize("name", [*OFTEN, "mistral, window", "gemma2, window", "gpt_oss, window"])
def test_in_bfloat16_they_are_within_its_rounding(name, folder):
    loaded = loading.load_pair_anew(pair_of(folder(name)), device="cpu", dtype="bf16")
    assert farthest(Target(loaded.target, 64), deepcopy(random_model(name)).bfloat16()) < 0.08


@pytest.mark.parametrize("name", [*OFTEN, "gemma2, window as wide as the context", *WINDOWED])
def test_the_forward_of_a_gpus_graphs_gives_the_same_logits(name, loaded):
    """Run eagerly on a CPU."""
    runner = loaded(name).target
    target = Target(runner, 64)
    target.session = Session(runner, 64, use_cuda_graphs=True)
    assert farthest(target, random_model(name)) < 2e-5


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "name", daily([*OFTEN, *WINDOWED], "gpt2", "falcon, new", "deepseek_v3", "gemma2, window", "mistral, window")
)
def test_races_are_lossless_up_to_the_end_of_the_context_window(name, temperature, loaded):
    """Learned positions end with the window, so a node beyond it would be an error. The target drafts for itself: paths are long."""
    pair = loaded(name)
    assert pair.target.forward_kind == "transformers"
    settings = Settings("Once", ("vanilla", "tree"), temperature=temperature, max_new_tokens=200, seed=3)
    race = Race(replace(pair, stop_ids=frozenset()), settings)
    for _ in race.run():
        pass
    plain, tree = (lane.trace for lane in race.lanes)
    assert race.result()["identical"] is True and len(plain.prompt_tokens + plain.tokens) >= CONTEXT - 1
    assert len(tree.steps) < 0.5 * len(tree.tokens)


@pytest.mark.parametrize("name", WINDOWED)
def test_token_by_token_a_model_with_a_window_has_the_logits_of_generate(name, loaded):
    """Whose cache forgets what the window has passed. The text is drawn, because greedy text of a random model repeats itself."""
    session = loaded(name).target.open_session(64)
    torch.manual_seed(1)
    drawn = random_model(name).generate(
        torch.tensor([PROMPT]),
        do_sample=True,
        max_new_tokens=12,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    text = drawn.sequences[0].tolist()
    session.prefill(PROMPT[:-1])
    for place, expected in enumerate(drawn.logits, len(PROMPT) - 1):
        torch.testing.assert_close(session.forward([text[place]], [place])[0], expected, atol=2e-5, rtol=0)
        session.keep([0])
    assert session.rows == 18 and len(set(text)) > 12


@pytest.mark.parametrize("name", ["mistral, window", "gemma2, window"])
def test_a_device_decides_rounds_of_models_with_a_window(name, loaded):
    tree, sampling = resolve_system_name("tree"), Sampling(0.0, 0, device=torch.device("cpu"))
    wide, windowed = loaded("llama"), loaded(name)
    for pair in (windowed, replace(wide, target=windowed.target), replace(wide, draft=windowed.draft)):
        assert tree.can_run_whole_rounds_on_device(pair, tree.default_shape, sampling)


def test_in_four_bits_a_model_is_near_the_plain_one_or_refused(tmp_path):
    """Falcon's own linear layers would stay as they are, without a word."""
    for kind in (tr.GPT2LMHeadModel, tr.FalconForCausalLM):
        torch.manual_seed(0)
        model = kind(kind.config_class(**SIZES | {"hidden_size": 128, "num_attention_heads": 2})).eval()
        model.save_pretrained(tmp_path / kind.__name__)
        byte_tokenizer().save_pretrained(tmp_path / kind.__name__)
    pair = loading.load_pair_anew(pair_of(tmp_path / "GPT2LMHeadModel"), device="cpu", quantisation="nf4")
    wanted = reference(tr.GPT2LMHeadModel.from_pretrained(tmp_path / "GPT2LMHeadModel"))
    assert 0.005 < (logits_of(pair.target) - wanted).std() / wanted.std() < 0.3
    with pytest.raises(ValueError, match=r"\(falcon\) has no layers that can be kept in nf4: load it"):
        loading.load_pair_anew(pair_of(tmp_path / "FalconForCausalLM"), device="cpu", quantisation="nf4")


def test_learned_features_are_what_the_head_reads(loaded):
    for name in NEW:
        runner = loaded(name).target
        with torch.inference_mode():
            logits, features = runner.open_session(16, feature_layers=True).forward(PROMPT, list(range(len(PROMPT))))
            read = runner.model.get_output_embeddings()(features[:, -1])
        torch.testing.assert_close(read, logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tr.FalconConfig(alibi=True), "ALiBi bias counts rows of the cache"),
        (tr.OPTConfig(hidden_size=1024, word_embed_proj_dim=512), "projects 1024 numbers to 512 before its logits"),
        (tr.BloomConfig(), "takes no position ids"),
        (tr.GPTJConfig(), "nobody has tried here what its cache holds"),
        (tr.DeepseekV2Config(), "does not hold plain keys and values by head"),
        (tr.VaultGemmaConfig(), "nobody has tried here how it takes a tree's mask"),
        (tr.PhimoeConfig(sliding_window=32), "nobody has tried here how it takes a tree's mask"),
        (tr.Gemma3Config(), "it reads more than text"),
        (tr.Gemma3TextConfig(use_bidirectional_attention=True), "its tokens attend to later ones"),
        (tr.Llama4TextConfig(), "it has layers of type chunked_attention"),
        (tr.Gemma3TextConfig(rope_parameters=DYNAMIC), "its dynamic rotary embedding changes"),
    ],
)
def test_what_was_not_verified_stays_refused(config, reason):
    assert reason in refusals.explain_why_unable_to_verify_trees(config)
