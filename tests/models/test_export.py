"""Export: a trained drafter in the layout of speculators is read back as the very net that was exported, and drafts the same trees."""

import copy
import json
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import load_file

from engine.__main__ import main
from engine.drafters import DRAFTERS
from engine.models.export import export_drafter_as_speculators, export_target
from engine.models.loading import load_model
from engine.models.pairs import MODELS, Checkpoint, Pair, find_listed_pair
from engine.nets import open_lazy_nets
from engine.nets.formats import PUBLISHED
from engine.nets.formats.exported import EXPORTS
from engine.race import Race, Settings
from engine.target import Target
from engine.tree import DraftTree

SYSTEMS = {
    "eagle": ("eagle", "eagle/chain/speculative"),
    "medusa": ("medusa", "medusa/best_first/token_match"),
    "parallel": ("parallel-tree", "parallel/best_first/token_match"),
    "dflash": ("dflash/chain/token_match", "dflash/best_first/token_match"),
    "dspark": ("dspark/chain/token_match", "dspark/best_first/token_match"),
}
TYPES = {"eagle": "eagle3", "parallel": "treerace_parallel", "dflash": "dflash", "dspark": "dspark"}
PROMPT = "Story: Once upon a time, a small fox"


@pytest.fixture(scope="module", params=EXPORTS)
def exported(request, tmp_path_factory):
    """The kind, and a folder of drafters in which the embedded pair's drafter of that kind was exported under another name."""
    folder = tmp_path_factory.mktemp("drafters")
    main(["export", request.param, str(folder / "Some-Drafter"), "--pair", "small"])
    return request.param, folder


def test_what_was_exported_is_read_back_bit_for_bit(exported, embedded):
    kind, folder = exported
    found = open_lazy_nets(folder, embedded.target.model)
    assert list(found) == [kind]
    before, after = embedded.net(kind), found[kind]
    assert type(before) is type(after)
    stored, again = before.state_dict(), after.state_dict()
    assert stored.keys() == again.keys() and all(torch.equal(stored[name], again[name]) for name in stored)
    if kind != "medusa":  # whose heads have no layer, so that its sizes say nothing
        assert asdict(before.config) == asdict(after.config)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_was_exported_races_the_same_trees_to_the_same_text(exported, temperature, embedded):
    kind, folder = exported
    settings = Settings(PROMPT, ("vanilla", *SYSTEMS[kind]), temperature=temperature, seed=3, max_new_tokens=24)
    lanes = []
    for pair in (embedded, replace(embedded, learned=open_lazy_nets(folder, embedded.target.model))):
        race = Race(pair, settings)
        list(race.run())
        lanes.append([[replace(step, seconds={}) for step in lane.trace.steps] for lane in race.lanes])
    assert lanes[0] == lanes[1]
    assert max(len(step.burst) for step in lanes[0][1]) > 2


def test_an_exported_config_has_the_keys_of_the_layout(exported):
    kind, folder = exported
    config = json.loads((folder / "Some-Drafter" / "config.json").read_text())
    said = (folder / "Some-Drafter" / "README.md").read_text()
    assert ("TreeRace alone runs it" in said) == (kind == "parallel") and str(MODELS) not in said
    if kind == "medusa":  # `vllm serve FOLDER` and speculators fail on a folder that has some of the keys
        assert not [name for name in config if name.startswith("speculators_")]
        return
    described, layer = config["speculators_config"], config["transformer_layer_config"]
    assert config["speculators_model_type"] == described["algorithm"] == TYPES[kind]
    assert config["speculators_version"] and len(config["architectures"]) == 1
    assert described["default_proposal_method"] == described["proposal_methods"][0]["proposal_type"] == "greedy"
    assert described["verifier"] == {
        "name_or_path": str(MODELS / "small" / "target"),
        "architectures": ["LlamaForCausalLM"],
    }
    assert (layer["hidden_size"], layer["vocab_size"], layer["max_position_embeddings"]) == (320, 4096, 1024)


def test_the_default_pairs_drafters_belong_to_the_target_in_its_files(tmp_path):
    main(["export", "eagle", str(tmp_path / "eagle"), "--pair", "embedded"])
    config = json.loads((tmp_path / "eagle" / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["name_or_path"] == str(MODELS / "embedded" / "target")


@torch.inference_mode()
def test_an_exported_eagle_is_the_published_network(embedded, tmp_path):
    """With another window it is read as EAGLE-3, which is computed in another order and without eight bits."""
    main(["export", "eagle", str(tmp_path / "eagle"), "--pair", "small"])
    path = tmp_path / "eagle" / "config.json"
    config = json.loads(path.read_text())
    config["transformer_layer_config"]["sliding_window"] = 200
    path.write_text(json.dumps(config))
    published = replace(embedded, learned=open_lazy_nets(tmp_path, embedded.target.model))
    own = copy.copy(embedded.net("eagle"))
    own.compiled = None
    text = embedded.tokenizer(PROMPT + " who lived in a big tree.")["input_ids"]
    guessed = []
    for pair in (published, replace(embedded, learned={"eagle": own})):
        drafter = DRAFTERS["eagle"](pair, 64)
        drafter.begin(text[:9], Target(pair.target, 64, drafter.reads_features).prefill_and_return_features(text[:8]))
        tree = DraftTree.from_root_token(text[8])
        for token in text[9:12]:
            tree.add(len(tree) - 1, token, 1.0, 1.0)
        guessed.append(torch.cat([drafter.log_q(tree, [level]) for level in range(4)]).exp())
    assert published.net("eagle").form and not published.net("eagle").compiled
    assert torch.allclose(*guessed, atol=1e-4, rtol=0) and guessed[0].max() > 0.2


def test_medusas_export_is_vllms_form(embedded, tmp_path):
    main(["export", "medusa", str(tmp_path / "medusa"), "--pair", "small"])
    config = json.loads((tmp_path / "medusa" / "config.json").read_text())
    assert (config["model_type"], config["num_heads"], config["truncated_vocab_size"]) == ("medusa", 4, 4096)
    assert set(load_file(tmp_path / "medusa" / "model.safetensors")) == {
        name.format(k)
        for k in range(4)
        for name in ("blocks.{}.layers.0.weight", "blocks.{}.layers.0.bias", "lm_heads.{}.weight")
    }
    net = open_lazy_nets(tmp_path, embedded.target.model)["medusa"]
    assert torch.equal(net.unembeds[3], embedded.net("medusa").unembeds[3])


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_a_narrow_blocks_export_holds_the_tables_that_it_shares(kind, tmp_path):
    """vLLM takes the target's own tables where a file has none, and its engine died of their width at the first request."""
    main(["export", kind, str(tmp_path / kind), "--pair", "embedded"])
    config = json.loads((tmp_path / kind / "config.json").read_text())
    found = load_file(tmp_path / kind / "model.safetensors")
    assert config["target_hidden_size"] == 640 and found["fc.weight"].shape == (320, 3 * 640)
    assert found["embed_tokens.weight"].shape == found["lm_head.weight"].shape == (4096, 320)
    target = load_model(Checkpoint(str(MODELS / "embedded" / "target")), torch.device("cpu"), torch.float32)
    table = target.get_input_embeddings().weight
    again, shipped = (
        PUBLISHED[kind].validate_config_and_make_loader(
            folder, json.loads((folder / "config.json").read_text()), table, 8
        )(folder, table, table)
        for folder in (tmp_path / kind, MODELS / "embedded" / "drafters" / kind)
    )
    assert again.sizes == shipped.sizes and torch.allclose(again.head, shipped.head, atol=1e-3)
    own = dict(again.named_parameters())
    assert all(torch.equal(own[name], each) for name, each in shipped.named_parameters())


def test_an_exported_eagle_holds_the_targets_embedding(embedded, tmp_path):
    """speculators takes an embedding that is not there for zeros, and says nothing."""
    export_drafter_as_speculators(find_listed_pair("small"), "eagle", tmp_path / "eagle")
    table = load_file(tmp_path / "eagle" / "model.safetensors")["embed_tokens.weight"]
    assert torch.equal(table.float(), embedded.target.model.get_input_embeddings().weight.float())


def test_a_target_in_eight_bits_is_exported_with_plain_weights(tmp_path):
    """vLLM knows no such quantisation on a CPU."""
    main(["export", "target", str(tmp_path / "target"), "--pair", "embedded"])
    assert "quantization_config" not in json.loads((tmp_path / "target" / "config.json").read_text())
    stored = load_nearby(MODELS / "embedded" / "target")
    plain, name = load_nearby(tmp_path / "target"), "model.layers.3.mlp.down_proj"
    scaled = stored[f"{name}.weight"].float() * stored[f"{name}.SCB"].float()[:, None] / 127
    assert stored[f"{name}.weight"].dtype == torch.int8 and plain[f"{name}.weight"].dtype == torch.float32
    assert torch.allclose(plain[f"{name}.weight"], scaled, rtol=1e-5)
    with pytest.raises(ValueError, match="holds files already"):
        export_target(find_listed_pair("embedded"), tmp_path / "target")


def load_nearby(folder) -> dict[str, torch.Tensor]:
    return {name: each for path in folder.glob("*.safetensors") for name, each in load_file(path).items()}


# ---- refusals


def test_what_cannot_be_exported_is_refused(exported, tmp_path, capsys):
    kind, folder = exported
    with pytest.raises(ValueError, match="holds safetensors already"):
        export_drafter_as_speculators(find_listed_pair("small"), kind, folder / "Some-Drafter")
    with pytest.raises(
        ValueError, match=f"has no trained {kind} drafter.*python -m engine train {kind} --pair smollm2"
    ):
        export_drafter_as_speculators(find_listed_pair("smollm2-1.7b"), kind, tmp_path)
    own = replace(find_listed_pair("small"), drafters_folder=str(folder))
    (folder / "Some-Drafter").rename(folder / kind)
    with pytest.raises(ValueError, match=f"holds no {kind} drafter that was trained here"):
        export_drafter_as_speculators(own, kind, tmp_path)
    (folder / kind).rename(folder / "Some-Drafter")
    with pytest.raises(SystemExit):
        main(["export", kind, str(tmp_path), "--drafter", str(folder)])
    assert f"--drafter '{folder}' needs --target" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_target_of_three_layers_has_no_eagle_that_the_format_can_name(tmp_path):
    config = json.loads((MODELS / "small" / "target" / "config.json").read_text()) | {"num_hidden_layers": 3}
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(config))
    pair = Pair("own", "a small one", str(tmp_path / "target"), drafters_folder=str(MODELS / "small" / "drafters"))
    with pytest.raises(ValueError, match=r"layers \[1, 1, 2\]"):
        export_drafter_as_speculators(pair, "eagle", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"block_size": None}, "block_size as a whole number from 1 on, got None"),
        (
            {"aux_hidden_state_layer_ids": [1, 4, 7]},
            r"reads the layers \[1, 4, 7\], and those of this target would be \[2, 4, 7\]",
        ),
        ({"transformer_layer_config": {"hidden_size": 320}}, "lacks 'num_attention_heads' of a parallel drafter"),
        ({"speculators_model_type": "treerace_other"}, "of the type 'treerace_other'"),
    ],
)
def test_an_exported_parallel_drafter_that_does_not_fit_is_refused(change, sentence, embedded, tmp_path):
    main(["export", "parallel", str(tmp_path / "one"), "--pair", "small"])
    path = tmp_path / "one" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=sentence):
        open_lazy_nets(tmp_path, embedded.target.model)
