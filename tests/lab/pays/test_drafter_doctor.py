"""The doctor of a learned drafter: each cause is provoked by a damaged checkpoint, and what would repair it is found by trying."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.forward.runner import Runner
from engine.lab.pays import drafter, followed
from engine.lab.pays.drafter import TrainingOutcome, diagnose_drafter, trained_context_length_of
from engine.lab.pays.followed import write_texts_with_hidden_states
from engine.measure.options import CURVE, load_held_out_prompts
from engine.measure.prompts import Prompt
from engine.models.export import export_drafter_as_speculators
from engine.models.pairs import MODELS, find_listed_pair
from engine.nets import load_net_from_folder
from helpers.commands import SMALL, run, told
from helpers.families import daily
from helpers.published.other_targets import quantised, tuned, turned

SHIPPED = MODELS / "small" / "drafters"
PROMPTS = [Prompt(text, kind) for kind in ("stories", "code") for text in load_held_out_prompts()[kind][:12]]
LAYERS = tuple(range(1, 8))  # all of the small target's that a drafter may read


@pytest.fixture(scope="module")
def pair(embedded):
    return embedded


@pytest.fixture(scope="module")
def few():
    """Few rounds a text, and few texts of free writing, so that a doctor's visit takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FREE": 2, "STRIDE": 6, "LENGTHS": ()}.items():
            patch.setattr(followed, name, value)
        yield


@pytest.fixture(scope="module")
def texts(pair, few):
    """Texts of the small target: behind as many prompts as the doctor takes, and two of free writing."""
    return write_texts_with_hidden_states(pair, PROMPTS, 0, LAYERS)


@pytest.fixture
def examined(pair, texts, monkeypatch):
    """What the doctor says of the drafter in a folder, along these texts or others, for the small target or another."""

    def visit(folder, pair=pair, texts=texts):
        monkeypatch.setattr(drafter, "write_texts_with_hidden_states", lambda *_: texts)
        net, trained = load_net_from_folder(folder, pair.target.model), trained_context_length_of(folder, pair.context)
        found = diagnose_drafter(pair, net, PROMPTS, trained, TrainingOutcome.read_from_training_curve(folder))
        assert found["sentence"].endswith(".") and json.loads(json.dumps(found)) == found
        return found

    return visit


def changed(name, folder, config=None, tensors=None):
    """A copy of a shipped drafter, with other entries in its config and other tensors."""
    copy = folder / name
    shutil.copytree(SHIPPED / name, copy)
    if config:
        said = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps(config(said)))
    if tensors:
        save_file(tensors(load_file(copy / "model.safetensors")), copy / "model.safetensors")
    return copy


def exported(folder, config=None, tensors=None):
    """The shipped EAGLE drafter in the layout of speculators, changed in the same way."""
    out = folder / "exported"
    export_drafter_as_speculators(find_listed_pair("small"), "eagle", out)
    said = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps((config or dict)(said)))
    file = out / "model.safetensors"
    save_file((tensors or dict)(load_file(file)), file)
    return out


def tried(found, cause):
    return max(row["tokens_a_round"] for row in found["experiments"] if row["cause"] == cause)


# ---- damaged checkpoints


def wrong_layers(folder):
    return exported(folder, lambda said: said | {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]})


def a_head_short(folder):
    """Medusa heads whose first one is gone, so that every other one stands where the one before it belongs."""

    def shifted(found):
        moved = {}
        for name, each in found.items():
            group, number, *rest = name.split(".")
            if int(number) > 0:
                moved[".".join([group, str(int(number) - 1), *rest])] = each
        return moved

    return changed("medusa", folder, lambda said: said | {"depth": 3}, shifted)


def foreign_embedding(folder):
    def with_own(found):
        draws = torch.Generator().manual_seed(0)
        return found | {"embed_tokens.weight": torch.randn(4096, 320, generator=draws) * 0.05}

    return exported(folder, tensors=with_own)


def blank_embedding(folder):
    """As a conversion leaves it that lost the embedding and filled the gap."""
    return exported(folder, tensors=lambda found: found | {"embed_tokens.weight": torch.zeros(4096, 320)})


def blank_head(folder):
    return changed("eagle", folder, tensors=lambda found: found | {"unembed": torch.zeros_like(found["unembed"])})


def foreign_head(folder):
    return changed("eagle", folder, tensors=lambda found: found | {"unembed": found["unembed"].flip(1)})


def map_one_on(folder):
    def rolled(found):
        ids = found["offsets"] + torch.arange(len(found["offsets"]))
        return found | {"offsets": ids.roll(1) - torch.arange(len(ids))}

    return changed("eagle", folder, tensors=rolled)


def other_rope(folder):
    return changed("parallel", folder, lambda said: said | {"rope_theta": 100.0})


def undeclared_anchor(folder):
    """A block that guesses from its anchor on, in a form whose blocks do not."""

    def without_markov(found):
        return {name: each for name, each in found.items() if not name.startswith("markov")}

    def as_dflash(said):
        block = {name: said[name] for name in ("mask_token_id", "target_layer_ids")}
        of_dspark = "num_anchors", "markov_rank", "markov_head_type", "enable_confidence_head", *block
        kept = {name: each for name, each in said.items() if name not in of_dspark}
        return kept | {"architectures": ["DFlashDraftModel"], "dflash_config": block}

    return changed("dspark", folder, as_dflash, without_markov)


def one_depth(folder):
    return changed("parallel", folder, lambda said: said | {"depth": 1})


def one_slot(folder):
    return changed("dflash", folder, lambda said: said | {"block_size": 2})


def vocabulary_of(folder, ids):
    """EAGLE with no other tokens than these."""

    def reduced(found):
        own = found["offsets"] + torch.arange(len(found["offsets"]))
        used = torch.isin(own, torch.tensor(sorted(ids)))
        kept = own[used]
        return found | {"offsets": kept - torch.arange(len(kept)), "unembed": found["unembed"][used]}

    copy = changed("eagle", folder, tensors=reduced)
    config = json.loads((copy / "config.json").read_text())
    own = len(load_file(copy / "model.safetensors")["offsets"])
    (copy / "config.json").write_text(json.dumps(config | {"own_vocab": own}))
    return copy


DAMAGES = {
    "layers": (wrong_layers, "the layers 2, 4, 7"),
    "shifted": (a_head_short, ""),
    "embedding": (foreign_embedding, "the target's embedding"),
    "embedding, lost": (blank_embedding, "the target's embedding"),
    "head": (foreign_head, "the target's head"),
    "head, lost": (blank_head, "the target's head"),
    "vocabulary": (map_one_on, "its map in ascending order"),
    "rope": (other_rope, "rope_theta 10000"),
    "anchors": (undeclared_anchor, "guesses from the anchor's own slot on"),
    "steps": (one_depth, "6 depths from one forward"),
    "steps, block": (one_slot, "6 depths from one forward"),
}
ALIKE = {"embedding", "embedding, lost", "head, lost"}  # the target's table takes their place as that of "head"
PUBLISHED = ("layers", "embedding", "embedding, lost")  # tensors draft them, ten times as slowly: a sixth of the texts


@pytest.mark.slow
@pytest.mark.parametrize("cause", daily(DAMAGES, *({*DAMAGES} - ALIKE)))
def test_the_cause_is_found_by_what_repairs_it(cause, examined, texts, tmp_path):
    some = texts[::6] if cause in PUBLISHED else texts
    (damage, repair), cause = DAMAGES[cause], cause.partition(",")[0]
    found = examined(damage(tmp_path), texts=some)
    assert found["cause"] == cause, found["sentence"]
    assert f"{repair} the drafter would give {tried(found, cause):.2f}" in found["sentence"]
    assert tried(found, cause) > 1.05 * found["tokens_a_round"]


@pytest.mark.slow
def test_a_drafter_that_is_as_it_should_be_has_no_cause_and_all_that_was_tried_is_named(examined):
    found = examined(SHIPPED / "eagle")
    assert found["cause"] == "none" and found["tokens_a_round"] > 3
    for cause in ("layers", "shifted tokens", "the vocabulary map", "rope", "another target and other text"):
        assert cause in found["sentence"]
    assert found["by_depth"][0]["accepted"] > 0.75 and found["by_depth"][0]["rounds"] == found["rounds"]
    assert [row["group"] for row in found["by_group"]] == ["stories", "code", "free writing"]


@pytest.mark.slow
@pytest.mark.parametrize("change", daily([turned, quantised, tuned], turned))
def test_another_target_is_told_by_features_that_do_not_help(change, examined, pair, few):
    """Turned, it is the same function with the same texts; only the hidden numbers stand elsewhere."""
    other = replace(pair, target=Runner(change(pair.target.model)))
    texts = write_texts_with_hidden_states(other, PROMPTS[::4], 0, LAYERS)
    found = examined(SHIPPED / "eagle", other, texts)
    assert found["cause"] == "target", found["sentence"]
    assert "this one was fine-tuned, quantised or rotated since" in found["sentence"]
    assert found["tokens_a_round"] < 2 and "layers, shifted tokens, head" in found["sentence"]


@pytest.mark.slow
@pytest.mark.parametrize(("right", "cause"), [(0.02, "hardly"), (0.8, "target"), (None, "target")])
def test_a_hardly_trained_drafter_is_told_from_one_for_another_target_by_its_curve(right, cause, examined, tmp_path):
    """All but its head is random. Only the curve says whether it ever guessed better than here; without one, both may be."""

    def random(found):
        torch.manual_seed(0)
        new = ("layer.", "fuse")
        return {name: torch.randn_like(each) * 0.02 if name.startswith(new) else each for name, each in found.items()}

    folder = changed("eagle", tmp_path, tensors=random)
    if right is not None:
        line = {"step": 9, "tokens": 20_000, "minutes": 0.1, "depth 1 top1": right}
        (folder / CURVE).write_text(json.dumps(line | {"depth 1 top1": 0.01}) + "\n" + json.dumps(line) + "\n")
    found = examined(folder)
    assert found["cause"] == cause and found["tokens_a_round"] < 1.5, found["sentence"]
    told = {"hardly": "after 20,000 tokens", "target": "80 % of the time" if right else "hardly trained looks the same"}
    assert told[cause] in found["sentence"]


@pytest.mark.slow
def test_a_drafter_of_other_text_is_told_by_the_targets_free_writing_and_its_vocabulary(examined, texts, tmp_path):
    """Its vocabulary is that of the texts that are not code; code it then guesses badly."""
    known = {token for text in texts if text.group != "code" for token in text.ids}
    few = [text for text in texts if text.group != "stories"]
    found = examined(vocabulary_of(tmp_path, known), texts=few)
    assert found["cause"] == "text", found["sentence"]
    by_kind = {row["group"]: row["tokens_a_round"] for row in found["by_group"]}
    assert by_kind["code"] < by_kind["free writing"] and "its vocabulary lacks" in found["sentence"]
    assert "python -m engine train eagle --prompts FILE" in found["sentence"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_contexts_beyond_training_are_told_by_a_window_that_helps_there(examined, pair, few, tmp_path, monkeypatch):
    """The shipped block drafter learned from rows of 256 tokens. Its own config does not say so; this one does."""
    for name, value in {"LENGTHS": (704,), "PROMPTS": 3}.items():
        monkeypatch.setattr(followed, name, value)
    texts = write_texts_with_hidden_states(pair, PROMPTS[::4], 256, LAYERS)
    found = examined(changed("dflash", tmp_path, lambda said: said | {"max_position_embeddings": 256}), texts=texts)
    assert found["cause"] == "context" and found["trained_context"] == 256, found["sentence"]
    assert "with the last 128 tokens alone, at positions from 0 on the drafter would give" in found["sentence"]
    assert "behind contexts of more than 256 tokens, now" in found["sentence"]
    beyond = [row for row in found["by_context"] if row["beyond_training"]]
    within = [row for row in found["by_context"] if not row["beyond_training"]]
    assert [row["least"] for row in beyond] == [257, 513]  # 320 tokens and 704
    inside = sum(row["rounds"] * row["tokens_a_round"] for row in within) / sum(row["rounds"] for row in within)
    assert inside > beyond[-1]["tokens_a_round"] + 0.5
    window = next(row for row in found["experiments"] if row["with"].startswith("the last 128"))
    assert 0 < window["rounds"] < found["rounds"] and window["tokens_a_round"] > 1.05 * window["without"]


# ---- the command


@pytest.mark.parametrize("name", ["lm_head.weight", "embed_tokens.weight"])
def test_a_missing_tensor_is_told_by_its_name(name, tmp_path, capsys):
    """A drafter as wide as its target may share the embedding. This one's config says that it is narrower."""

    def narrow(said):
        return said | {
            "target_hidden_size": 320,
            "transformer_layer_config": said["transformer_layer_config"] | {"hidden_size": 160},
        }

    def without(found):
        return {each: tensor for each, tensor in found.items() if each != name}

    folder = exported(tmp_path, narrow if name.startswith("embed") else None, without)
    with pytest.raises(SystemExit) as ended:
        run("doctor", "--drafter", folder, "--prompts", prompts_in(tmp_path), *SMALL, "--device", "cpu")
    said = capsys.readouterr()
    assert ended.value.code == 2 and f"lacks the tensor {name}. Fetch its files anew." in said.err


@pytest.mark.slow
def test_the_command_prints_a_table_and_a_sentence_and_with_json_the_figures_alone(tmp_path, capsys, few):
    words = ("--drafter", SHIPPED / "medusa", "--prompts", prompts_in(tmp_path), *SMALL, "--device", "cpu")
    run("doctor", *words, "--json")
    found = json.loads(capsys.readouterr().out)
    said, again = told(capsys, "doctor", *words)
    assert again == found and said[-1] == found["sentence"]
    assert said[1] == f"tokens a round  {found['tokens_a_round']:.2f}" and len(said) < 20
    assert [row["depth"] for row in found["by_depth"]] == [1, 2, 3, 4]  # a head each


def prompts_in(folder):
    file = folder / "my.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": prompt.text, "group": prompt.group}) for prompt in PROMPTS))
    return file


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--prompts", "{file}"), "--prompts needs --drafter: name the folder of the learned drafter to examine."),
        (("--drafter", "{all}", "--prompts", "{file}"), "holds the drafters dflash, dspark, eagle, medusa"),
        (("--drafter", "{folder}", "--prompts", "{file}"), "holds no drafter. Name the folder of one"),
        (("a.json",), "Give two runs, A and B, or --drafter FOLDER and --prompts FILE"),
        (("a.json", "b.json", "--prompts", "{file}"), "Give two runs, A and B, or --drafter FOLDER and --prompts FILE"),
        (("--drafter", "{all}/eagle", "--prompts", "no.txt"), "There is no file 'no.txt'."),
    ],
)
def test_what_cannot_be_examined_is_refused_with_a_sentence(words, sentence, tmp_path, capsys):
    named = {"file": prompts_in(tmp_path), "all": SHIPPED, "folder": tmp_path}
    with pytest.raises(SystemExit) as ended:
        run("doctor", *(word.format(**named) for word in words), *SMALL)
    said = capsys.readouterr()
    assert ended.value.code == 2 and sentence in said.err and said.err.count("\n") == 1
