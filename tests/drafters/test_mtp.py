"""MTP layers of a target's own checkpoint: they draft what transformers' own layers draft, and texts are plain decoding's."""

import json
import re
from dataclasses import replace
from functools import cache
from shutil import copytree

import pytest
import torch
from safetensors.torch import save_file
from transformers.generation.candidate_generator import MTPCandidateGenerator

from engine.drafters import DRAFTERS
from engine.models.loading import load_pair_anew
from engine.models.pairs import build_pair
from engine.nets.formats.mtp_told import build_mtp_model
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree
from helpers.families import daily, state_model
from helpers.pairs import tiny_pair
from helpers.published.mtp import LAYERS, TARGETS, guesses, rewrite, tensors_of, theirs, write

TEXT = [5, 80, 33, 12, 200, 41, 7]
BRANCHES = (0, 0, 1, 2, 3, 5, 4)  # parents of a tree that is four levels deep
STATES = ("Qwen3-Next", "Qwen3.5", "Qwen3.5-MoE", "Nemotron-H")  # generate(use_mtp=True) refuses models with states
STATELESS = [name for name in TARGETS if name not in STATES]
RACED = [name for name in TARGETS if name not in ("Qwen3.5-MoE", "GLM-4 MoE Lite, two")]
SYSTEMS = ("mtp", "mtp/chain/token_match:4x1x5", "mtp/expand_rerank/token_match:5x3x12")
LAWFUL = ("mtp/chain/speculative", "mtp/dyspec/without_replacement:5x4x8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder of a target's checkpoint, written when it is first asked for."""
    place = tmp_path_factory.mktemp("mtp")

    def of(name: str):
        path = place / name
        if not path.exists():
            write(path, *TARGETS[name])
        return path

    return of


@pytest.fixture(scope="module")
def loaded(folder):
    """Returns a target of `TARGETS` in memory, loaded when it is first asked for, whose texts have no end."""
    return cache(lambda name: replace(load_pair_anew(build_pair(str(folder(name)))), stop_ids=frozenset()))


def raced(pair, *systems: str, **settings) -> Race:
    race = Race(pair, Settings("Once upon", ("vanilla", *systems), **settings))
    for _ in race.run():
        pass
    return race


def furthest(pair, model, layers, begun=None) -> float:
    """The largest difference of our log-probabilities from transformers', of the root and of every node in five rounds.

    A tree is deeper than there are layers. `begun` changes the target's features before a drafter reads them.
    """
    begun = begun or (lambda features: features)
    drafter, text, worst = DRAFTERS["mtp"](pair, 90), list(TEXT), 0.0
    target = Target(pair.target, 90, drafter.reads_features)
    drafter.begin(text, begun(target.prefill_and_return_features(text[:-1])))
    for number, path in enumerate(([], [2, 4], [1, 3, 5, 6], [1], [2, 4, 7])):
        tree, asked = DraftTree.from_root_token(text[-1]), {}
        asked[0] = drafter.log_q(tree, [0])[0]
        for parent in BRANCHES:
            tree.add(parent, (17 * number + 5 * len(tree)) % 256, 0.5, 0.5)
        for depth in range(1, max(tree.depth) + 1):
            level = [node for node in range(len(tree)) if tree.depth[node] == depth]
            asked |= dict(zip(level, drafter.log_q(tree, level), strict=True))
        for leaf in set(range(len(tree))) - set(tree.parents):
            nodes = tree.path_below_root(leaf)
            expected = guesses(model, layers, text, [tree.tokens[node] for node in nodes])
            for node, wanted in zip([0, *nodes], expected, strict=True):
                worst = max(worst, (asked[node] - wanted).abs().max().item())
        _, features = target.verify(tree)
        target.commit(path)
        drafter.commit(tree, path, bonus := (31 * number) % 256, begun(features))
        text += [tree.tokens[node] for node in path] + [bonus]
    assert drafter.draft_forward_count == 5 * (1 + max(tree.depth))
    return worst


@pytest.mark.parametrize("name", TARGETS)
def test_every_node_gets_the_guesses_of_transformers_own_layers(name, folder, loaded, monkeypatch):
    """A gated delta state is 1e-5 from itself, read token by token against all at once."""
    pair = loaded(name)
    model, layers = theirs(folder(name), monkeypatch)
    assert furthest(pair, model, layers) < (1e-4 if name in STATES else 2e-5)


@pytest.mark.parametrize("name", ["Qwen3-Next", "Nemotron-H"])
def test_features_of_another_token_or_before_the_norm_would_show(name, folder, loaded, monkeypatch):
    """A layer's own norm takes away a row's scale, so a state before the target's final norm is one without its weights."""
    pair = loaded(name)
    model, layers = theirs(folder(name), monkeypatch)
    decoder = model.get_decoder()
    norm = decoder.norm_f if name == "Nemotron-H" else decoder.norm
    weights = norm(torch.ones(1, model.config.hidden_size)).detach()
    for damaged in (lambda features: features.roll(1, 0), lambda features: features / weights):
        assert furthest(pair, model, layers, damaged) > 0.02


@pytest.mark.parametrize("name", ["Qwen3-Next", "Qwen3.5", "Nemotron-H"])
def test_a_chain_behind_states_is_what_transformers_layers_draft(name, folder, loaded, monkeypatch):
    """Token for token in every round, and the text is that of `generate()`."""
    pair = loaded(name)
    model, layers = theirs(folder(name), monkeypatch)
    race = raced(pair, "mtp/chain/token_match:3x1x4", max_new_tokens=24)
    prompt, (plain, chain) = race.lanes[0].trace.prompt_tokens, (lane.trace for lane in race.lanes)
    how = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None}
    assert plain.tokens == chain.tokens == model.generate(torch.tensor([prompt]), **how)[0, len(prompt) :].tolist()
    text = prompt + chain.tokens
    for step in chain.steps[::2]:
        own, path = step.tokens[1:], []
        while len(path) < len(own):
            path.append(int(guesses(model, layers, text[: step.position + 1], path)[-1].argmax()))
        assert own == path
    assert sum(len(step.tokens) - 1 for step in chain.steps) > 20


@pytest.mark.parametrize("name", daily(STATELESS, "GLM-4 MoE, two", "DeepSeek-V3"))
def test_a_chain_is_what_generate_drafts_and_texts_are_its_texts(name, folder, loaded, monkeypatch):
    """`generate(use_mtp=True)` on the same files: the same guesses in every round, and the same text."""
    pair = loaded(name)
    model, _ = theirs(folder(name), monkeypatch)
    drafted, inner = [], MTPCandidateGenerator.get_candidates

    def spy(self, input_ids, *args, **kwargs):
        found = inner(self, input_ids, *args, **kwargs)
        drafted.append((input_ids.shape[1] - 1, found[0][0, input_ids.shape[1] :].tolist()))
        return found

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", spy)
    levels = TARGETS[name][1]
    race = raced(pair, f"mtp/chain/token_match:{levels}x1x{levels + 1}", max_new_tokens=30)
    prompt, (plain, chain) = race.lanes[0].trace.prompt_tokens, (lane.trace for lane in race.lanes)
    how = {"max_new_tokens": 30, "do_sample": False, "eos_token_id": None}
    texts = [
        model.generate(torch.tensor([prompt]), use_mtp=mtp, **how)[0, len(prompt) :].tolist() for mtp in (False, True)
    ]
    assert plain.tokens == chain.tokens == texts[0] == texts[1]
    own = {step.position: step.tokens[1:] for step in chain.steps}
    drafted = [
        (position, tokens) for position, tokens in drafted if tokens
    ]  # nothing before the target's first forward
    both = [(own[position], tokens) for position, tokens in drafted if len(own.get(position, ())) == levels]
    assert len(both) > 15 and all(mine == other for mine, other in both)


@pytest.mark.parametrize("name", daily(RACED, "GLM-4 MoE, two", "Qwen3.5"))
def test_chains_and_trees_are_lossless(name, loaded):
    pair = loaded(name)
    assert raced(pair, *SYSTEMS, *LAWFUL, max_new_tokens=10).result()["identical"] is True
    race = raced(pair, *SYSTEMS, max_new_tokens=24, temperature=0.8, seed=3)
    assert race.result()["identical"] is True
    assert max(lane.trace.tau for lane in race.lanes) > 1.3  # some guesses came true
    assert raced(pair, LAWFUL[0], max_new_tokens=10, temperature=0.8).result()["identical"] == "law"


def test_a_text_of_one_token_begins_without_a_state(loaded):
    for name in ("DeepSeek-V3, three", "GLM-4 MoE", "Qwen3.5"):
        pair = loaded(name)
        for temperature in (0.0, 0.8):
            race = Race(pair, Settings("O", ("vanilla", "mtp"), max_new_tokens=10, temperature=temperature))
            for _ in race.run():
                pass
            assert race.result()["identical"] is True and len(race.lanes[0].trace.prompt_tokens) == 1


@pytest.mark.parametrize("name", ["GLM-4 MoE", "Nemotron-H"])
def test_a_target_alone_races_auto_with_its_own_layers(name, loaded):
    pair = loaded(name)
    assert DRAFTERS["best"].inner_drafter_candidates(pair) == ["mtp"] and [*pair.learned] == ["mtp"]
    assert raced(pair, "auto", max_new_tokens=30).result()["identical"] is True


def test_in_bfloat16_the_layers_have_the_targets_type(folder):
    pair = load_pair_anew(build_pair(str(folder("GLM-4 MoE, two"))), dtype="bf16")
    assert pair.net("mtp").weight_with_net_dtype_and_device.dtype == torch.bfloat16
    assert raced(pair, "mtp", max_new_tokens=12).result() is not None


# ---- its files


def changed(folder, tmp_path, name: str, change):
    """A copy of the checkpoint with other tensors."""
    copytree(folder(name), tmp_path, dirs_exist_ok=True)
    tensors = tensors_of(tmp_path)
    change(tensors)
    rewrite(tmp_path, tensors)
    return load_pair_anew(build_pair(str(tmp_path)))


def without(*names: str):
    return lambda tensors: [tensors.pop(name) for name in names]


def with_one(name: str, tensor):
    return lambda tensors: tensors.update({name: tensor(tensors)})


FIRST = f"model.layers.{LAYERS}."


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("GLM-4 MoE", without(FIRST + "eh_proj.weight"), "lacks layers.0.eh_proj.weight"),
        ("GLM-4 MoE", without(FIRST + "shared_head.norm.weight"), "lacks layers.0.post_norm.weight"),
        ("GLM-4 MoE", without(FIRST + "self_attn.q_proj.weight", FIRST + "hnorm.weight"), "1 more of its tensors do not fit"),
        ("DeepSeek-V3", without(FIRST + "mlp.experts.1.up_proj.weight"), "mlp.experts.gate_up_proj"),
        ("DeepSeek-V3, three", lambda tensors: [tensors.pop(each) for each in [*tensors] if ".4." in each], "lacks layers.2"),
        ("GLM-4 MoE", with_one(FIRST + "extra.weight", lambda _: torch.zeros(3)), "extra.weight, which no MTP layer has"),
        ("GLM-4 MoE", with_one(FIRST + "enorm.weight", lambda _: torch.zeros(3)), r"layers.0.enorm.weight as \[3\]"),
        ("GLM-4 MoE", with_one(FIRST + "shared_head.head.weight", lambda each: each["lm_head.weight"] + 1), "differs from the"),
        ("GLM-4 MoE", with_one(FIRST + "embed_tokens.weight", lambda _: torch.zeros(2, 2)), "embed_tokens.weight, which differs"),
        ("Mellum, window", without("mtp.fc.weight"), "lacks layers.0.eh_proj.weight"),
        ("Qwen3-Next", without("mtp.layers.0.mlp.gate.weight"), "lacks layers.0.mtp_block.mlp.gate.weight"),
        ("Qwen3.5", with_one("mtp.norm.weight", lambda _: torch.zeros(3)), r"layers.0.post_norm.weight as \[3\]"),
        ("Qwen3.5", with_one("mtp.layers.1.mlp.up_proj.weight", lambda _: torch.zeros(3)), "which no MTP layer has"),
        ("Nemotron-H", without("mtp.layers.1.final_layernorm.weight"), "lacks layers.0.post_norm.weight"),
        ("Nemotron-H", with_one("mtp.layers.2.norm.weight", lambda _: torch.zeros(3)), "which no MTP layer has"),
    ],
)  # fmt: skip
def test_a_tensor_that_is_missing_unknown_or_other_is_refused_by_name(name, change, sentence, folder, tmp_path):
    """The target still races; only what needs its MTP layers is refused."""
    pair = changed(folder, tmp_path, name, change)
    with pytest.raises(ValueError, match=sentence) as refused:
        DRAFTERS["mtp"](pair, 64)
    assert str(tmp_path) not in str(refused.value)
    assert raced(pair, "lookup", max_new_tokens=8).result()["identical"] is True


def test_what_a_checkpoint_need_not_repeat_is_the_targets_own(folder, tmp_path):
    """A dropped embedding or head would give guesses that never come true."""
    whole = load_pair_anew(build_pair(str(folder("GLM-4 MoE"))))
    pair = changed(
        folder, tmp_path, "GLM-4 MoE", without(FIRST + "shared_head.head.weight", FIRST + "embed_tokens.weight")
    )
    taus = [raced(each, "mtp", max_new_tokens=40, temperature=0.8).lanes[1].trace.tau for each in (whole, pair)]
    assert taus[0] == taus[1] > 1
    model = pair.net("mtp").model
    assert model.shared_head is pair.target.model.lm_head and model.embed_tokens is pair.target.model.model.embed_tokens


def test_a_checkpoint_in_several_files_is_found_by_its_index(folder, tmp_path):
    pair = load_pair_anew(build_pair(str(folder("DeepSeek-V3, three"))))
    copytree(folder("DeepSeek-V3, three"), tmp_path, dirs_exist_ok=True)
    tensors, places = tensors_of(tmp_path), {}
    (tmp_path / "model.safetensors").unlink()
    for number, names in enumerate(([*tensors][::2], [*tensors][1::2])):
        save_file({name: tensors[name] for name in names}, tmp_path / f"part-{number}.safetensors", {"format": "pt"})
        places |= dict.fromkeys(names, f"part-{number}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    other = load_pair_anew(build_pair(str(tmp_path)))
    for mine, same in zip(pair.net("mtp").parameters(), other.net("mtp").parameters(), strict=True):
        assert torch.equal(mine, same)


def test_a_target_without_such_layers_is_refused_with_the_reason(folder, tmp_path):
    def none(tensors):
        for name in [*tensors]:
            if name.startswith(FIRST):
                tensors.pop(name)

    pair = changed(folder, tmp_path, "GLM-4 MoE", none)
    said = (
        "By its config it ships 1, and its files hold no tensor of layer 2 and none of mtp. Choose a target that does"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        DRAFTERS["mtp"](pair, 64)
    bare = replace(tiny_pair(), learned={})
    bare.target.config.num_mtp_layers = None
    with pytest.raises(ValueError, match=r"its target ships none that can be read here\. Choose"):
        DRAFTERS["mtp"](bare, 64)
    assert DRAFTERS["best"].inner_drafter_candidates(pair) == ["lookup"]


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("Nemotron-H", {"mtp_layers_block_type": ["linear_attention", "moe"]}, "hold linear_attention, which keeps a state"),
        ("Nemotron-H", {"num_nextn_predict_layers": 2}, "Its config names 2 MTP layers, and nobody has tried"),
        ("Qwen3.5", {"mtp_num_hidden_layers": 3}, "Its config names 3 MTP layers, and nobody has tried"),
        ("Qwen3.5", {"mtp_num_hidden_layers": 0}, "its target ships none that can be read here. Choose"),
    ],
)  # fmt: skip
def test_layers_of_another_make_are_refused_with_the_reason(name, setting, said, folder, tmp_path):
    """One with a state could not take a rejected guess back. The target races all the same."""
    copytree(folder(name), tmp_path, dirs_exist_ok=True)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | setting))
    pair = load_pair_anew(build_pair(str(tmp_path)))
    with pytest.raises(ValueError, match=re.escape(said)):
        DRAFTERS["mtp"](pair, 64)
    assert DRAFTERS["best"].inner_drafter_candidates(pair) == ["lookup"]
    assert raced(pair, "lookup", max_new_tokens=6).result()["identical"] is True


def test_norms_are_the_targets_own_where_its_last_layer_has_a_state():
    """transformers takes the first norm of the last layer, and a gated one would want a gate."""
    target = state_model("qwen3_next")
    assert target.config.layer_types[-1] == "linear_attention"
    layer = build_mtp_model(target).layers[0]
    assert {type(each) for each in (layer.enorm, layer.hnorm, layer.post_norm)} == {type(target.model.norm)}
