"""Nets with a width of their own: which targets get one, what their tables start from, and what files and formats hold them."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from engine.drafters import DRAFTERS
from engine.forward.runner import Runner
from engine.lab.train.learned import RECIPES, drafter_config_for
from engine.lab.train.loop import muon_and_adamw_for
from engine.lab.train.width import (
    DrafterSizes,
    choose_drafter_sizes,
    initial_embedding_head_and_norm,
    principal_directions_of,
)
from engine.models.export import export_drafter_as_speculators
from engine.models.pairs import MODELS, Pair
from engine.nets import NETS, open_lazy_nets
from engine.nets.layer import share_narrowed_target_tables
from engine.target import Target
from engine.tree import DraftTree
from helpers.learned import TEXT, WIDTHS, config_of
from helpers.pairs import tiny_llama, tiny_pair

IDS = torch.arange(256).repeat(4)


def sizes(hidden: int, layers: int, heads: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=3 * hidden
    )


@pytest.mark.parametrize(
    ("target", "width"),
    [
        (sizes(640, 8, 10), DrafterSizes(320, 5, 896, 640)),
        (sizes(512, 8, 8), DrafterSizes(512, 8, 1536)),
        (sizes(320, 8, 5), DrafterSizes(320, 5, 960)),
        (sizes(4096, 36, 32), DrafterSizes(4096, 32, 12288)),
        (sizes(576, 12, 9), DrafterSizes(256, 4, 704, 576)),
    ],
)
def test_a_drafter_of_a_wide_and_shallow_target_is_half_as_wide(target, width):
    assert choose_drafter_sizes(target) == width


def test_a_width_may_be_asked_for_and_fits_the_heads():
    target = sizes(640, 8, 10)
    assert choose_drafter_sizes(target, 448) == DrafterSizes(448, 7, 1216, 640)
    assert choose_drafter_sizes(target, 640) == DrafterSizes(640, 10, 1920)
    for hidden in (0, 32, 330, 704):
        with pytest.raises(ValueError, match=f"multiple of 64.* 640; got {hidden}"):
            choose_drafter_sizes(target, hidden)


@pytest.mark.parametrize("kind", NETS)
def test_a_shipped_net_is_written_again_byte_for_byte(kind, embedded, tmp_path):
    shipped = MODELS / "small" / "drafters" / kind
    NETS[kind].load_for_drafting(shipped, *(each().weight for each in accessors(embedded.target.model))).save(tmp_path)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (shipped / name).read_bytes(), name


def accessors(model):
    return model.get_input_embeddings, model.get_output_embeddings


def test_a_projection_keeps_what_a_low_rank_table_holds():
    """The distributions of a target whose head has rank 32 are those of the net's start."""
    target = tiny_llama(0)
    with torch.no_grad():
        target.model.norm.weight.copy_(1 + 0.1 * torch.randn(64))
        narrow = torch.linalg.qr(torch.randn(64, 32))[0]
        target.lm_head.weight.copy_(target.lm_head.weight @ narrow @ narrow.T / target.model.norm.weight)
    embedding, head, norm = initial_embedding_head_and_norm(target, config_of("specblock", "narrow"))
    state = torch.randn(5, 64)
    wanted = (state * target.model.norm.weight) @ target.lm_head.weight.T
    kept = state @ principal_directions_of(target.lm_head.weight * target.model.norm.weight, 32)
    assert torch.allclose(kept @ head.T, 2**0.5 * wanted, atol=1e-3)
    assert embedding.shape == (256, 32) and torch.equal(norm, torch.ones(32))


def test_a_net_as_wide_as_its_target_starts_from_the_targets_own():
    target = tiny_llama(0)
    embedding, head, _ = initial_embedding_head_and_norm(target, config_of("eagle"))
    assert embedding.data_ptr() == target.get_input_embeddings().weight.data_ptr()
    assert head.data_ptr() == target.get_output_embeddings().weight.data_ptr()


@pytest.mark.parametrize("name", RECIPES)
def test_own_tables_are_trained_saved_and_left_out_of_muon(name, tmp_path):
    target, recipe = tiny_llama(0, layers=8), RECIPES[name]
    net = recipe.build_untrained_net(target, drafter_config_for(name, target, 32), IDS)
    own, shared = (
        set(dict(net.named_parameters())),
        recipe.build_untrained_net(target, drafter_config_for(name, target, 64), IDS),
    )
    assert {table for table in net.used_table_names if table in own} == set(net.used_table_names)
    assert not {"embedding", "head"} & set(shared.state_dict())
    muon = {id(each) for group in muon_and_adamw_for(net, 1e-3)[0].param_groups for each in group["params"]}
    assert all(id(getattr(net, table)) not in muon for table in net.used_table_names)
    net.save(tmp_path / name)
    stored = load_file(tmp_path / name / "model.safetensors")
    assert all(stored[net.file_name_by_weight.get(table, table)].shape == (256, 32) for table in net.used_table_names)
    loaded = open_lazy_nets(tmp_path, target)[name]
    for key, weight in net.state_dict().items():
        assert torch.allclose(loaded.state_dict()[key].float(), weight.float(), atol=1e-2), key


def test_a_narrow_net_names_the_width_of_the_target_that_it_was_trained_for(tmp_path):
    for name in RECIPES:
        target = tiny_llama(0, layers=8)
        RECIPES[name].build_untrained_net(target, drafter_config_for(name, target, 32), IDS).save(
            tmp_path / name / name
        )
        wide = torch.nn.Embedding(256, 96)
        target.set_input_embeddings(wide)
        with pytest.raises(ValueError, match=r"target of 256 tokens and hidden size 64, this one .*has 256 and 96"):
            open_lazy_nets(tmp_path / name, target)


# ---- in the layouts of others


def trained(folder, kind: str, width: str) -> Pair:
    """A pair whose narrow drafter of that kind lies in `folder`, with the config of its target."""
    target = tiny_llama(0, layers=8)
    config = config_of(kind, width)
    torch.manual_seed(1)
    net = RECIPES[kind].build_untrained_net(target, config, IDS)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    net.save(folder / "drafters" / kind)
    target.save_pretrained(folder / "target")  # whose embedding an export holds
    return Pair("own", "a small one", str(folder / "target"), drafters_folder=str(folder / "drafters"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["eagle", "parallel"])
def test_an_export_is_read_back_as_the_same_net_and_compiled(kind, width, tmp_path):
    export_drafter_as_speculators(trained(tmp_path, kind, width), kind, tmp_path / "out" / kind)
    target = tiny_llama(0, layers=8)
    before, after = (open_lazy_nets(tmp_path / each, target)[kind] for each in ("drafters", "out"))
    assert before.config == after.config and after.compiled
    stored, again = before.state_dict(), after.state_dict()
    assert stored.keys() == again.keys() and all(torch.equal(stored[name], again[name]) for name in stored)


@torch.inference_mode()
def test_a_narrow_eagle_is_the_published_network(tmp_path):
    """With another window it is read as EAGLE-3 with an embedding of its own, which is computed without our net's loops."""
    export_drafter_as_speculators(trained(tmp_path, "eagle", "narrow"), "eagle", tmp_path / "out" / "eagle")
    path, target = tmp_path / "out" / "eagle" / "config.json", tiny_llama(0, layers=8)
    config = json.loads(path.read_text())
    config["transformer_layer_config"]["sliding_window"] = 200
    path.write_text(json.dumps(config))
    pair, guessed = replace(tiny_pair(), target=Runner(target)), []
    for folder in ("out", "drafters"):
        each = replace(pair, learned=open_lazy_nets(tmp_path / folder, target))
        net = each.net("eagle")
        assert (net.form is None) == (folder == "drafters")
        net.compiled = None
        drafter = DRAFTERS["eagle"](each, 64)
        drafter.begin(TEXT[:9], Target(each.target, 64, drafter.reads_features).prefill_and_return_features(TEXT[:8]))
        tree = DraftTree.from_root_token(TEXT[8])
        for token in TEXT[9:12]:
            tree.add(len(tree) - 1, token, 1.0, 1.0)
        guessed.append(torch.cat([drafter.log_q(tree, [level]) for level in range(4)]).exp())
    # The random target's features are so small that the norms' eps shows
    assert torch.allclose(*guessed, atol=1e-3, rtol=0) and guessed[0].max() > 0.2


def test_medusas_format_has_no_narrow_heads(tmp_path):
    with pytest.raises(ValueError, match=r"are 32 wide and their target 64.*train medusa --hidden 64"):
        export_drafter_as_speculators(trained(tmp_path, "medusa", "narrow"), "medusa", tmp_path / "out")


@pytest.mark.parametrize("kind", NETS)
def test_a_narrow_drafter_that_stores_no_tables_reads_the_means_of_its_targets(kind, tmp_path):
    pair, target = trained(tmp_path, kind, "narrow"), tiny_llama(0, layers=8)
    folder = tmp_path / "drafters" / kind
    stored = load_file(folder / "model.safetensors")
    kept = open_lazy_nets(tmp_path / "drafters", target)[kind]
    names = [kept.file_name_by_weight.get(name, name) for name in kept.used_table_names]
    save_file({name: each for name, each in stored.items() if name not in names}, folder / "model.safetensors")
    shared = open_lazy_nets(tmp_path / "drafters", target)[kind]
    assert (
        pair.drafters_folder
        and shared.config == kept.config
        and not {*shared.used_table_names} & {*dict(shared.named_parameters())}
    )
    tables = {"embedding": target.get_input_embeddings().weight, "head": target.get_output_embeddings().weight}
    for name in shared.used_table_names:
        assert getattr(kept, name).requires_grad is False and torch.equal(
            getattr(shared, name), tables[name].detach().view(256, -1, shared.config.hidden).mean(1)
        )


def test_tables_of_a_target_that_is_no_multiple_as_wide_are_not_shared(tmp_path):
    net = RECIPES["eagle"].build_untrained_net(tiny_llama(0, layers=8), config_of("eagle", "narrow"), IDS)
    with pytest.raises(ValueError, match="hidden size of 32 cannot share the tables of a target with 80"):
        share_narrowed_target_tables(net, torch.zeros(256, 80), torch.zeros(256, 80))
