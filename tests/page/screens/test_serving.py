"""Settings for other engines: every system has one in each, its numbers are the shape's, and what can be run here runs."""

import json
import re
import shlex
import sys

import pytest
import torch
import transformers
import yaml

from engine.drafters.lookup import LONGEST
from engine.page.screens.serving import configurations, table
from engine.page.screens.serving.rendering import Setting, facts, words
from engine.systems import SYSTEMS
from helpers.pairs import byte_tokenizer, tiny_llama

ENGINES = ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp", "transformers")
SHAPES = [(None, None, None), (5, 3, 9), (1, 1, 2), (12, 16, 64), (6, 1, 4)]


def setting(system: str, engine: str, *shape, temperature: float = 0.0) -> dict:
    found = {each["engine"]: each for each in configurations(system, *shape, temperature=temperature)}
    assert tuple(found) == ENGINES
    return found[engine]


def chain(system: str, shape: tuple) -> int:
    depth, nodes = (shape[0], shape[2]) if shape[0] else (SYSTEMS[system].depth, SYSTEMS[system].nodes)
    return depth if SYSTEMS[system].policy == "chain" else min(depth, nodes - 1)  # as the policies grow them


def flags(code: str) -> dict[str, str]:
    """The options of a shell command; one without a value is True."""
    words = shlex.split(code.split("\n\n")[0])
    named = zip(words, [*words[1:], "--"], strict=True)
    return {word: True if value.startswith("--") else value for word, value in named if word.startswith("--")}


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_vllm_gets_valid_json_with_the_chain_that_the_tree_holds(name, shape):
    each = setting(name, "vLLM", *shape)
    found = flags(each["code"])
    if name == "vanilla":
        assert found == {}
        return
    config = json.loads(found["--speculative-config"])
    assert config["num_speculative_tokens"] == chain(name, shape)
    assert config["method"] in ("draft_model", "eagle3", "medusa", "dflash", "mtp", "ngram", "suffix")
    assert (config.get("model") == "DRAFT") == (config["method"] not in ("mtp", "ngram", "suffix"))
    assert (config["method"] == "mtp") == (name == "mtp")
    assert (config["method"] == "suffix") == (name == "suffix")
    assert any("a chain and no tree" in said for said in each["cannot"]) == (
        SYSTEMS[name].policy != "chain" and (shape[1] or SYSTEMS[name].width) > 1
    )


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_sglang_gets_a_tree_that_it_can_fill(name, shape):
    each = setting(name, "SGLang", *shape)
    found = flags(each["code"])
    if name == "vanilla":
        assert set(found) == {"--model-path"}
        return
    nodes = shape[2] or SYSTEMS[name].nodes
    kept = int(found["--speculative-num-draft-tokens"])
    if found["--speculative-algorithm"] == "NGRAM":
        assert kept == nodes and "--speculative-draft-model-path" not in found
    elif found["--speculative-algorithm"] == "DFLASH":
        assert kept == chain(name, shape) + 1
    else:
        steps, width = int(found["--speculative-num-steps"]), int(found["--speculative-eagle-topk"])
        assert kept == steps + 1 if width == 1 else kept <= 1 + width + (steps - 1) * width**2
        assert kept <= max(nodes, chain(name, shape) + 1) and steps <= chain(name, shape)
        if "--speculative-adaptive" in found:
            assert width == 1 and steps in (1, 3, 7) and found["--speculative-algorithm"] == "EAGLE3"
        else:
            assert steps == chain(name, shape) and (
                kept == nodes or width == 1 or "fills no more than" in str(each["cannot"])
            )
        assert ("--disable-overlap-schedule" in found) == (width > 1)
    assert ("--speculative-accept-threshold-single" in found) == (name == "medusa-typical")


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_setting_is_whole_and_honest(name, temperature):
    for each in configurations(name, temperature=temperature):
        assert all(each[key] for key in ("version", "idea", "language", "code", "source"))
        assert f"temperature{'=' if each['language'] == 'python' else chr(34) + ': '}{temperature:g}" in each[
            "code"
        ] or (each["language"] == "python" and temperature == 0 and "do_sample=False" in each["code"])
        assert len(set(each["cannot"])) == len(each["cannot"])
        assert all(re.fullmatch(r"[A-Z][^{}]+\.", said) for said in each["cannot"])
        assert any("seed" in said for said in each["cannot"]) == (
            temperature > 0 and SYSTEMS[name].guarantee == "tokens"
        )
        if name not in ("vanilla", "tree", "chain", "block"):
            assert each["cannot"]


@pytest.mark.parametrize(
    ("name", "engine", "words"),
    [
        ("medusa", "SGLang", "no Medusa drafter; EAGLE-3 is the nearest"),
        ("medusa", "vLLM", "trained for your target"),
        ("suffix", "SGLang", "no suffix tree drafter; n-gram lookup is the nearest"),
        ("suffix", "vLLM", "needs the package arctic-inference"),
        ("eagle", "transformers", "no EAGLE drafter; a draft model is the nearest"),
        ("nanogpt-tree", "vLLM", "no bigram table drafter; n-gram lookup is the nearest"),
        ("specblock-adapt", "vLLM", "does not learn while it serves"),
        ("parallel-tree", "SGLang", "no parallel-tree drafter; DFlash is the nearest"),
        ("naive", "transformers", "biased rule is not offered"),
        ("chain", "SGLang", "min(1, p/q) for EAGLE chains only"),
        ("auto", "vLLM", "12 is an upper limit here"),
        ("auto", "vLLM", "needs full CUDA graphs"),
        ("auto", "TensorRT-LLM", "the same size every round"),
        ("auto", "llama.cpp", "where the draft is unsure (below 0.4)"),
        ("lookup/auto/token_match", "vLLM", "fixed length, or one for each batch size"),
        ("medusa", "TensorRT-LLM", "no Medusa drafter; EAGLE-3 is the nearest"),
        ("medusa", "TensorRT-LLM", "A fixed tree from calibration has no field any more"),
        ("tree", "TensorRT-LLM", "trees of EAGLE-3 and MTP, and a chain here: of depth 4, width 4 and 8 nodes"),
        ("eagle", "TensorRT-LLM", "not for models with sliding windows"),
        ("naive", "llama.cpp", "biased rule is not offered"),
        ("chain", "llama.cpp", "where the target samples the same token: the same distribution, fewer guesses"),
        ("dyspec", "llama.cpp", "it cannot draw them"),
        ("lookup", "llama.cpp", "every match votes"),
        ("specinfer", "SGLang", "it cannot draw them"),
        ("tree", "transformers", "one sequence at a time"),
        ("mtp", "transformers", "one guess for every MTP layer, whatever the depth"),
        ("mtp", "llama.cpp", "a chain and no tree"),
        ("mtp/auto/token_match", "SGLang", "only EAGLE-3 can adapt"),
    ],
)
def test_what_an_engine_cannot_do_is_said(name, engine, words):
    assert any(words in said for said in setting(name, engine)["cannot"])


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tensorrt_llm_gets_valid_yaml_with_a_tree_within_its_bounds(name, shape):
    each = setting(name, "TensorRT-LLM", *shape)
    if name == "vanilla":
        assert each["code"].startswith("trtllm-serve TARGET\n\n")
        return
    before, after = each["code"].split("END\n", 1)
    given = yaml.safe_load(before.split("<<'END'\n")[1])
    assert after.startswith("trtllm-serve TARGET --config config.yaml\n\n")
    found, deep = given["speculative_config"], chain(name, shape)
    assert found["max_draft_len"] == deep and found["decoding_type"] in (
        "Eagle3",
        "DraftTarget",
        "NGram",
        "DFlash",
        "MTP",
    )
    assert (found.get("speculative_model") == "DRAFT") == (found["decoding_type"] not in ("NGram", "MTP"))
    assert ("disable_overlap_scheduler" in given) == (found["decoding_type"] in ("NGram", "DraftTarget"))
    if "use_dynamic_tree" in found:
        wide, total = found["dynamic_tree_max_topK"], found["max_total_draft_tokens"]
        assert found["decoding_type"] in ("Eagle3", "MTP") and found["use_dynamic_tree"] is True
        assert deep <= total <= wide * deep and total <= (shape[2] or SYSTEMS[name].nodes) - 1
        assert "use_rejection_sampling" not in found


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_llama_server_gets_flags_that_it_still_has(name, shape):
    found = flags(setting(name, "llama.cpp", *shape)["code"])
    assert {found.pop("--top-k"), found.pop("--min-p")} == {"0"} and found.pop("--top-p") == "1"
    if name == "vanilla":
        assert found == {}
        return
    kind, most = found.pop("--spec-type"), str(chain(name, shape))
    assert found.pop("--spec-draft-p-min", "0.4") == "0.4"
    if kind == "ngram-simple":
        assert found == {"--spec-ngram-simple-size-n": str(LONGEST), "--spec-ngram-simple-size-m": most}
    else:
        assert kind in ("draft-simple", "draft-eagle3", "draft-dflash", "draft-mtp")
        assert found == {"--spec-draft-n-max": most}
        assert ("-md DRAFT" in setting(name, "llama.cpp", *shape)["code"]) == (kind != "draft-mtp")


def test_what_adapts_here_adapts_where_an_engine_can():
    assert '"enable_adaptive_verification": true' in setting("auto", "vLLM")["code"]
    assert "enable_adaptive_verification" not in setting("lookup/auto/token_match", "vLLM")["code"]
    assert "enable_adaptive_verification" not in setting("tree", "vLLM")["code"]
    assert "--spec-draft-p-min 0.4" in setting("auto", "llama.cpp")["code"]
    assert "--spec-draft-p-min" not in setting("tree", "llama.cpp")["code"]


def test_min_p_over_q_is_asked_for_where_it_exists():
    assert "use_rejection_sampling: true" in setting("chain", "TensorRT-LLM")["code"]
    assert "use_rejection_sampling: true" in setting("eagle/chain/speculative", "TensorRT-LLM")["code"]
    assert "use_rejection_sampling" not in setting("tree", "TensorRT-LLM")["code"]
    assert '"draft_sample_method": "probabilistic"' in setting("chain", "vLLM")["code"]
    assert "rejection_sample_method" not in setting("chain", "vLLM")["code"]
    assert '"rejection_sample_method": "block"' in setting("block", "vLLM")["code"]
    assert not any("as a whole is not offered" in said for said in setting("block", "vLLM")["cannot"])
    assert any("as a whole is not offered" in said for said in setting("block", "SGLang")["cannot"])
    assert "--speculative-use-rejection-sampling" not in setting("chain", "SGLang")["code"]
    assert "--speculative-use-rejection-sampling" in setting("eagle/chain/speculative", "SGLang")["code"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, str]:
    """The tiny random pair as directories."""
    home = tmp_path_factory.mktemp("pair")
    for name, model in (("TARGET", tiny_llama(0)), ("DRAFT", tiny_llama(1, layers=1))):
        model.save_pretrained(home / name)
        byte_tokenizer().save_pretrained(home / name)
    return {name: str(home / name) for name in ("TARGET", "DRAFT")}


def execute(code: str, saved: dict[str, str]) -> dict:
    for name, path in {**saved, "PROMPT": "Once upon a time"}.items():
        code = code.replace(f'"{name}"', repr(path))
    room = {}
    exec(compile(code.replace("max_new_tokens=200", "max_new_tokens=12"), "setting", "exec"), room)
    return room


@pytest.mark.parametrize(
    ("name", "temperature"), [("vanilla", 0.8), ("tree", 0.0), ("tree", 0.8), ("lookup", 0.0), ("auto", 0.8)]
)
def test_the_setting_for_transformers_runs_here(name, temperature, saved, monkeypatch):
    """Written for the installed version; another one must be looked at again. `drafted` catches an option that generate() ignores."""
    each = setting(name, "transformers", 3, 2, 8, temperature=temperature)
    newest = sys.version_info >= (3, 11)  # Python 3.10 has transformers 5.20 at most
    assert transformers.__version__.startswith(each["version"]) or not newest
    drafted = []
    for kind in (
        transformers.generation.AssistedCandidateGenerator,
        transformers.generation.PromptLookupCandidateGenerator,
    ):
        inner = kind.get_candidates

        def spy(self, input_ids, *args, inner=inner, **kwargs):
            found = inner(self, input_ids, *args, **kwargs)
            drafted.append(found[0].shape[1] - input_ids.shape[1])
            return found

        monkeypatch.setattr(kind, "get_candidates", spy)
    torch.manual_seed(0)
    room = execute(each["code"], saved)
    assert room["output"].shape == (1, len("Once upon a time") + 12)
    assert bool(drafted) == (name != "vanilla")
    if name == "tree":
        assert max(drafted) == 3 and drafted[:4] == [3, 3, 3, 3]
    elif name == "lookup":
        assert max(drafted) <= 3
    if temperature == 0:
        plain = execute(setting("vanilla", "transformers")["code"], saved)["output"]
        assert room["output"].tolist() == plain.tolist()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("wizard",), "Unknown system 'wizard'"),
        (("tree", 0, 2, 8), "Depth must be between 1 and 12, got 0"),
        (("tree", 3, 2, 99), "Nodes must be between 2 and 64, got 99"),
        (("tree", 3, "2", 8), "Width must be a number"),
        (("tree", None, None, None, -1.0), "Temperature must be between"),
        (("tree!mask",), "wrong on purpose"),
    ],
)
def test_a_bad_setting_gets_a_sentence(asked, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        configurations(*asked)


def test_a_mixed_system_has_settings_too():
    for mixed in (
        "lookup/kary/token_match",
        "medusa/sparse/typical",
        "model/auto/token_match",
        "eagle/dyspec/without_replacement",
    ):
        assert [each["engine"] for each in configurations(mixed, temperature=0.5)] == list(ENGINES)


@pytest.mark.parametrize("engine", table.ENGINES, ids=lambda engine: engine.name)
def test_a_row_of_the_table_names_facts_and_words_that_there_are(engine):
    setting = Setting(SYSTEMS["tree"], 0.0)
    known, said = facts(engine, setting), words(engine, setting) | {"flags": ""}
    for rows in vars(engine).values():
        for condition, *texts in rows if isinstance(rows, tuple) else ():
            assert {fact.removeprefix("-") for fact in condition.replace("|", " ").split()} <= {*known}, condition
            for text in texts:
                assert text.format_map(said) or text in ("{policy_lost}", "{rule_lost}")  # "" where nothing is lost
