"""Models of one's own: named on the command line, refused in one sentence, raced like any pair."""

import re
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import replace

import pytest
import torch

from engine.__main__ import main
from engine.lab.train.learned import RECIPES, drafter_config_for
from engine.measure.options import add_pair_options, pair_of_options
from engine.models import loading, pairs, refusals
from engine.nets.formats import composite
from engine.race import Race, Settings
from helpers.checkpoints import byte_tokenizer
from helpers.pairs import tiny_llama
from helpers.paths import ROOT
from helpers.published import mtp

COMMIT = "a" * 40
MEASURING = ("bench", "bench --by length", "study", "calibrate", "record")


def given(*arguments: object, otherwise: str = "embedded") -> pairs.Pair:
    parser = ArgumentParser()
    add_pair_options(parser)
    return pair_of_options(parser.parse_args([*map(str, arguments)]), otherwise)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A target and its draft, each in a folder as a person would have them."""
    folder = tmp_path_factory.mktemp("own")
    for name, seed in (("large", 0), ("small", 1)):
        model = tiny_llama(seed, layers=2 - seed)
        model.resize_token_embeddings(257)
        model.save_pretrained(folder / name)
        byte_tokenizer().save_pretrained(folder / name)
    return folder


def raced(pair: pairs.LoadedPair, system: str, temperature: float) -> bool:
    race = Race(pair, Settings("Once upon", ("vanilla", system), temperature=temperature, max_new_tokens=12))
    for _ in race.run():
        pass
    return race.result()["identical"]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_folders_race_as_target_and_draft(own, temperature):
    pair = given("--target", own / "large", "--draft", own / "small")
    assert (pair.name, pair.title) == ("own", "small → large")
    assert raced(loading.load(pair, "cpu"), "tree", temperature) is True


def test_an_own_model_is_called_as_its_owner_says(own):
    called = given("--target", own / "large", "--draft", own / "small", "--name", "Our 7B")
    assert called.title == "Our 7B" and called == replace(
        given("--target", own / "large", "--draft", own / "small"), title="Our 7B"
    )
    assert called.training_command_options == "--target large"  # a command needs the model itself
    for wrong in ("", " ", "a\nb", "x" * 61):
        with pytest.raises(ValueError, match="--name must be 1 to 60 letters in one line"):
            given("--target", own / "large", "--name", wrong)
    with pytest.raises(ValueError, match="--name 'Our 7B' needs --target, the model that is called so"):
        given("--pair", "small", "--name", "Our 7B")


def test_a_target_alone_races_what_needs_no_draft_model(own):
    loaded = loading.load(given("--target", own / "large"), "cpu")
    assert loaded.title == "large"
    assert raced(loaded, "lookup", 0.8) is True and raced(loaded, "auto", 0.0) is True
    with pytest.raises(ValueError, match=r"pair large .*no draft model.*lookup"):
        raced(loaded, "tree", 0.0)
    with pytest.raises(ValueError, match=r"train eagle --target large`"):
        loaded.net("eagle")


def test_a_folder_of_drafters_comes_along(own, tmp_path):
    with pytest.raises(ValueError, match="holds no learned drafter"):
        given("--target", own / "large", "--drafter", tmp_path)
    target = loading.load(given("--target", own / "large"), "cpu").target.model
    net = RECIPES["medusa"].build_untrained_net(
        target, drafter_config_for("medusa", target), torch.arange(257).repeat(4)
    )
    net.save(tmp_path / "medusa")
    loaded = loading.load(given("--target", own / "large", "--drafter", tmp_path), "cpu")
    assert list(loaded.learned) == ["medusa"] and not loaded.calibration.ranks
    costs = '{"verify_ms": {}, "first_ms": 0, "level_ms": 0}'
    (tmp_path / "calibration.json").write_text(f'{{"ranks": {{"medusa": [[0.5, 0.2], [0.4, 0.2]]}}, "costs": {costs}}}')
    again = loading.load_pair_anew(given("--target", own / "large", "--drafter", tmp_path), "cpu")
    assert again.calibration.ranks["medusa"] and raced(again, "medusa", 0.8) is True


def test_a_repository_is_named_with_its_commit():
    pair = given("--target", f"org/large@{COMMIT}", "--draft", f"org/small@{COMMIT}")
    assert (pair.target, pair.target_revision, pair.draft, pair.draft_revision) == (
        "org/large", COMMIT, "org/small", COMMIT,
    )  # fmt: skip
    assert pair.title == "small → large" and pair.training_command_options == f"--target org/large --revision {COMMIT}"
    assert pair.target_checkpoint.load_arguments["trust_remote_code"] is False


def test_a_pair_without_a_head_names_those_that_were_published_for_its_target(own):
    """Also when a person names a listed target as their own. Heads of formats that are not read are not named."""
    listed = pairs.PAIRS["qwen3-8b"]
    mine = given("--target", f"{listed.target}@{listed.target_revision}")
    loaded = loading.load(given("--target", own / "large"), "cpu")
    for pair in (listed, mine):
        with pytest.raises(
            ValueError, match=r"Published for its target: EAGLE-3 RedHatAI/Qwen3-8B-speculator\.eagle3, .*"
        ) as said:
            replace(loaded, pair=pair).net("eagle")
        assert "DFlash" not in str(said.value) and str(said.value).endswith("give a folder with one as --drafter.")
    for pair, name in (
        (listed, "medusa"),
        (listed, "parallel"),
        (pairs.PAIRS["llama-3.1-8b"], "eagle"),
        (loaded.pair, "eagle"),
    ):
        with pytest.raises(ValueError, match=rf"python -m engine train {name} [^`]*`\.$"):
            replace(loaded, pair=pair).net(name)


def test_the_engines_page_names_every_published_head():
    page = (ROOT / "engine" / "README.md").read_text("utf-8")
    for pair in pairs.PAIRS.values():
        for form, heads in pair.published_drafters_by_format.items():
            assert all(f"| `{pair.name}` | {form} | `{head}` |" in page for head in heads)


def loads(heading: str) -> set[str]:
    """The targets that the engine's page says can race, in the table below this heading."""
    page = (ROOT / "engine" / "README.md").read_text("utf-8")
    section = re.split(rf"^##+ {heading}$", page, maxsplit=1, flags=re.MULTILINE)[1].split("\n##")[0]
    table = re.findall(r"^\| (.+?) \|(.*)\|$", section, re.MULTILINE)
    told = [re.sub(r" \(.*?\)", "", names) for names, here in table if not re.search("refused|does not read", here)]
    return {name for names in told for name in re.split(", | and |: ", names)}


@pytest.mark.parametrize(
    ("heading", "tried"),
    [
        ("Other models", re.split(", | and ", refusals.FAMILIES)),
        ("Other models", composite.TRIED.values()),
        ("Targets with a state", re.split(", | and ", refusals.STATE_FAMILIES)),
        ("MTP layers of a target itself", mtp.FAMILIES),
    ],
)
def test_the_engines_tables_say_of_every_family_that_was_tried_that_it_loads(heading, tried):
    """What was tried is what other tests race: families, text models of models that read images, states, and MTP layers."""
    assert len(tried) > 5 and set(tried) <= loads(heading)
    assert not {"Mllama", "Jamba", "RWKV", "MiMo-7B", "Step 3.7", "LongCat"} & loads(heading)


def test_without_models_of_ones_own_a_listed_pair_is_taken():
    assert given() is pairs.PAIRS["embedded"] and given(otherwise="qwen2.5-7b") is pairs.PAIRS["qwen2.5-7b"]
    assert given("--pair", "embedded", otherwise="qwen2.5-7b") is pairs.PAIRS["embedded"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--target", "x", "--pair", "embedded"), r"--target 'x' and --pair 'embedded' both name a target"),
        (("--target", "org/name@main"), r"--target 'org/name@main' names 'main', .* give all 40 digits"),
        (("--target", "org/name@" + "A" * 40), r"is no full commit"),
        (("--target", "org/name"), r"'org/name' is no folder here: give .* OWNER/NAME@COMMIT"),
        (("--target", "no/such/folder"), r"'no/such/folder' is no folder here"),
        (("--target", ""), r"--target '' is no folder here"),
        (("--target", ROOT / "engine"), r"engine' has no config\.json"),
        (("--target", f"org/name@{COMMIT}", "--draft", "nowhere"), r"--draft 'nowhere' is no folder here"),
        (("--target", f"org/name@{COMMIT}", "--drafter", "nowhere"), r"--drafter 'nowhere' holds no learned drafter"),
        (("--draft", "x"), r"--draft 'x' needs --target"),
        (("--drafter", "x", "--pair", "embedded"), r"--drafter 'x' needs --target"),
        (("--pair", "gpt-9"), r"Unknown pair 'gpt-9'\. Available: embedded"),
    ],
)
def test_what_names_no_pair_is_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        given(*arguments)
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)


@pytest.mark.parametrize("command", MEASURING)
def test_every_measuring_command_takes_models_of_ones_own(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--target", "nowhere"])
    assert ended.value.code == 2 and "--target 'nowhere' is no folder here" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["calibrate", "record"])
def test_only_an_embedded_pair_replaces_what_is_shipped(command, own, capsys):
    with pytest.raises(SystemExit):
        main([command, "--target", str(own / "large")])
    assert "--out is needed for large" in capsys.readouterr().err


def test_the_app_refuses_before_it_serves_or_loads_anything():
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "app.py", "--port", "0", "--target", "nowhere"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.endswith("with all 40 digits of the commit.\n") and " torch\n" not in ended.stderr
