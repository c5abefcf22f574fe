"""Gemma 4's assistant as a drafter: it drafts what transformers' candidate generator drafts, and texts are plain decoding's."""

import json
import shutil
from dataclasses import replace
from functools import cache

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from engine.batch import decode_batch_round_by_round
from engine.drafters import DRAFTERS
from engine.measure import peers
from engine.models.loading import load_pair_anew
from engine.models.pairs import build_pair
from engine.nets import open_lazy_nets
from engine.policies import POLICIES
from engine.race import Race, Settings
from engine.sampling import Sampling
from engine.systems import can_feed_policy, is_sound_policy_for_acceptance, resolve_system_name
from engine.target import Target
from engine.tree import DraftTree
from helpers.checkpoints import SIZES
from helpers.families import daily
from helpers.published.assistant import PAIRS, chain, theirs, write

TEXT = [5, 80, 33, 12, 200, 41, 7, 90, 14]  # longer than the window
SYSTEMS = ("mtp", "mtp/chain/token_match:4x1x5", "mtp/expand_rerank/token_match:5x3x12")
LAWFUL = ("mtp/chain/speculative", "mtp/dyspec/without_replacement:5x4x8")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns the folders of a pair of `PAIRS`, written when they are first asked for."""
    place = tmp_path_factory.mktemp("assistants")
    return lambda name: write(place, name)


@pytest.fixture(scope="module")
def loaded(files):
    """Returns a pair of `PAIRS` in memory, loaded when it is first asked for, whose texts have no end.

    One of them is named by the folder above its assistant's.
    """

    @cache
    def of(name: str):
        target, own = files(name)
        given = build_pair(str(target), drafters_folder=str(own.parent if name == "groups" else own))
        return replace(load_pair_anew(given, "cpu"), stop_ids=frozenset())

    return of


def raced(pair, *systems: str, prompt: str = "Once upon a time", **settings) -> Race:
    race = Race(pair, Settings(prompt, ("vanilla", *systems), **settings))
    for _ in race.run():
        pass
    return race


@pytest.mark.parametrize("name", PAIRS)
def test_a_chain_is_what_transformers_candidate_generator_drafts(name, files, loaded):
    """Round after round, behind texts that are shorter and longer than the window. Rejected nodes leave nothing behind."""
    pair, models = loaded(name), theirs(*files(name), name)
    drafter, text = DRAFTERS["mtp"](pair, 90), TEXT[:3]
    target = Target(pair.target, 90, drafter.reads_features)
    drafter.bind_target_cache(target.session.cache)
    drafter.begin(text, target.prefill_and_return_features(text[:-1]))
    for number, kept in enumerate((0, 4, 2, 1, 3)):
        tree = DraftTree.from_root_token(text[-1])
        wanted, logits = chain(*models, text, 5)
        for node, token in enumerate(wanted):
            mine = drafter.log_q(tree, [node])[0]
            torch.testing.assert_close(mine, logits[node].log_softmax(-1), atol=2e-4, rtol=0)
            assert int(mine.argmax()) == token
            tree.add(node, token, 0.5, 0.5)
        _, features = target.verify(tree)
        path = list(range(1, 1 + kept))
        target.commit(path)
        drafter.commit(tree, path, bonus := (31 * number) % 256, features)
        text += [tree.tokens[node] for node in path] + [bonus]
    assert drafter.draft_forward_count == 25 and len(text) > 15


@pytest.mark.parametrize("name", PAIRS)
def test_one_forward_answers_a_level_and_a_node_depends_on_its_own_path_alone(name, loaded):
    pair = loaded(name)
    drafter = DRAFTERS["mtp"](pair, 90)
    target, forwards = Target(pair.target, 90, drafter.reads_features), []
    drafter.bind_target_cache(target.session.cache)
    features = target.prefill_and_return_features(TEXT[:-1])
    heard = pair.net("mtp").model.model.layers[0].register_forward_hook(lambda *_: forwards.append(1))

    def answers(*levels: list[tuple[int, int]]) -> torch.Tensor:
        """The last level's answers in a tree of these levels of (parent, token)."""
        drafter.begin(TEXT, features)
        tree = DraftTree.from_root_token(TEXT[-1])
        found = drafter.log_q(tree, [0])
        for level in levels:
            first = len(tree)
            for parent, token in level:
                tree.add(parent, token, 0.5, 0.5)
            found = drafter.log_q(tree, list(range(first, len(tree))))
        return found

    wide = answers([(0, 3), (0, 9), (0, 40)], [(1, 7), (2, 7), (3, 8)])
    assert len(forwards) == 3 and not torch.allclose(wide[0], wide[1], atol=1e-3)
    for at, (first, second) in enumerate(((3, 7), (9, 7), (40, 8))):
        alone = answers([(0, first)], [(1, second)])
        torch.testing.assert_close(wide[at], alone[0], atol=2e-4, rtol=0)
    heard.remove()


@pytest.mark.parametrize("name", daily(PAIRS, "plain"))
def test_chains_and_trees_are_lossless(name, loaded):
    pair = loaded(name)
    for temperature in (0.0, 0.8):
        assert raced(pair, *SYSTEMS, max_new_tokens=12, temperature=temperature, seed=3).result()["identical"] is True
    if name == "plain":
        assert raced(pair, *LAWFUL, max_new_tokens=10).result()["identical"] is True
        assert raced(pair, LAWFUL[0], max_new_tokens=10, temperature=0.8).result()["identical"] == "law"


@pytest.mark.slow
def test_every_policy_takes_its_guesses(loaded):
    pair = loaded("plain")
    able = [
        each
        for each in POLICIES
        if is_sound_policy_for_acceptance(each, "token_match")
        and can_feed_policy("mtp", each)
        and each not in ("sequoia", "sparse")
    ]
    assert len(able) > 5
    for policy in able:
        assert raced(pair, f"mtp/{policy}/token_match", max_new_tokens=6).result()["identical"] is True, policy


def test_a_text_of_one_token_begins_without_a_row(loaded):
    race = raced(loaded("plain"), "mtp", "auto", prompt="O", max_new_tokens=12)
    assert race.result()["identical"] is True and len(race.lanes[0].trace.prompt_tokens) == 1


def test_texts_that_share_their_forwards_are_written_as_alone(loaded):
    """Layers differ in heads and width, and each text's drafter reads its own rows, also when another text has left."""
    pair, prompts = loaded("groups"), [TEXT, TEXT[:3]]
    found: dict[int, list[int]] = {0: [], 1: []}
    for number, done in decode_batch_round_by_round(pair, resolve_system_name("mtp"), prompts, [Sampling(0.0)] * 2, 10):
        found[number] += done.burst
    alone = [peers.generate_with_transformers(pair, prompt, 10, 0.0) for prompt in prompts]
    assert [found[0], found[1]] == alone


def test_the_texts_are_those_of_generate_and_generate_with_the_assistant_is_a_peer(loaded):
    pair = loaded("plain")
    lanes = raced(pair, "mtp", max_new_tokens=24).lanes
    prompt = lanes[0].trace.prompt_tokens
    for way in (peers.generate_with_transformers, peers.list_generate_functions(pair)[peers.MTP]):
        assert way(pair, prompt, 24, 0.0) == lanes[0].trace.tokens == lanes[1].trace.tokens
    assert (
        1
        <= peers.measure_tau_by_forward_hook(pair, peers.generate_by_mtp_or_gemma_assistant, [prompt], 24, 0.0)
        <= 1 + peers.GUESSES
    )
    assert peers.MTP not in peers.list_generate_functions(
        loaded("unified")
    )  # transformers shows an assistant no rows that are not shared


def test_a_gemma_without_its_assistant_says_where_to_name_it(files):
    pair = load_pair_anew(build_pair(str(files("plain")[0])), "cpu")
    with pytest.raises(ValueError, match="checkpoint of its own: give its folder as --drafter"):
        DRAFTERS["mtp"](pair, 64)


# ---- its files


def changed(files, tmp_path, name: str, change=lambda _: None, **config):
    """The pair with other tensors or another config in a copy of its assistant's folder."""
    target, own = files(name)
    copy = shutil.copytree(own, tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    said = json.loads((copy / "config.json").read_text())
    for key, value in config.items():
        inner = said if key in said else said["text_config"]
        inner[key] = value
    (copy / "config.json").write_text(json.dumps(said))
    return load_pair_anew(build_pair(str(target), drafters_folder=str(copy)), "cpu")


ORDER = "masked_embedding.token_ordering"


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("plain", lambda all: all.pop("pre_projection.weight"), "lacks the tensor pre_projection.weight"),
        ("plain", lambda all: all.pop("model.layers.1.layer_scalar"), r"lacks the tensor model.layers.1.layer_scalar"),
        ("plain", lambda all: all.update(extra=torch.zeros(2)), "the tensor extra, which this format does not have"),
        ("plain", lambda all: all.update({"model.norm.weight": torch.zeros(3)}), r"model.norm.weight in the shape \[3\]"),
        ("plain", lambda all: all.update({"lm_head.weight": all["model.embed_tokens.weight"] + 1}), "its config ties them"),
        ("groups", lambda all: all.pop("masked_embedding.centroids.weight"), "lacks the tensor masked_embedding.centroids"),
        ("groups", lambda all: all[ORDER].fill_(3), "does not name every token once"),
    ],
)  # fmt: skip
def test_a_tensor_that_is_missing_unknown_or_other_is_refused_by_name(name, change, sentence, files, tmp_path):
    """The target still races; only what needs its assistant is refused."""
    pair = changed(files, tmp_path, name, change)
    with pytest.raises(ValueError, match=sentence) as refused:
        DRAFTERS["mtp"](pair, 64)
    assert str(tmp_path) not in str(refused.value)
    assert raced(pair, "lookup", max_new_tokens=6).result()["identical"] is True


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"backbone_hidden_size": 48}, "it needs 48 as hidden size, and this target has 32"),
        ({"vocab_size": 300}, "it needs 300 as tokens, and this target has 257"),
        ({"num_key_value_heads": 1}, "it needs 1 as key-value heads in sliding_attention, and this target has 2"),
        ({"head_dim": 16}, "it needs 16 as head size in sliding_attention, and this target has 8"),
        ({"num_kv_shared_layers": 1}, "no assistant that can be computed"),
        ({"hidden_size_per_layer_input": 4}, "no assistant that can be computed"),
        ({"a_key_of_next_year": 0}, "sets a_key_of_next_year to 0 in text_config, which is not computed here"),
    ],
)
def test_an_assistant_of_another_target_is_refused_by_a_sentence(config, sentence, files, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        changed(files, tmp_path, "plain", **config)


def test_a_setting_that_transformers_does_not_read_is_refused_by_name(files, tmp_path):
    target, own = files("plain")
    copy = shutil.copytree(own, tmp_path / "copy")
    said = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(said | {"attention_sink_bias": True}))
    with pytest.raises(ValueError, match=r"sets attention_sink_bias to True in config\.json"):
        load_pair_anew(build_pair(str(target), drafters_folder=str(copy)), "cpu")


def test_it_reads_the_cache_of_no_other_family(files, tmp_path):
    with pytest.raises(ValueError, match=r"is an assistant of Gemma 4 .* this one is of type llama"):
        open_lazy_nets(files("plain")[1], LlamaForCausalLM(LlamaConfig(**SIZES)))
