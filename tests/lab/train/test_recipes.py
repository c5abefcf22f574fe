"""The recipe of an embedded pair, on a corpus of a few lines and models of a few thousand weights."""

import argparse
import functools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from engine.lab.train import data, learned, recipes, writing
from engine.lab.train import distill as distilling
from engine.lab.train import pair as pairs
from engine.lab.train import pretrain as pretraining
from engine.lab.train.data import TokenCorpus, extract_functions_of_3_to_60_lines, is_held_out_file, load_documents
from engine.lab.train.distill import DRAFT_SHAPES, distill_draft, distillation_loss
from engine.lab.train.features import FeatureShards, LiveBatches, write_feature_shards
from engine.lab.train.loop import Muon, TrainingBudget, orthogonalise, train_or_resume_within_budget
from engine.lab.train.pair import END_OF_TEXT, train_tokenizer, write_checkpoint
from helpers.families import daily

pytestmark = pytest.mark.slow
TRAINED_OFTEN = ("dspark", True), ("medusa", True), ("eagle", False)  # a block, heads and a layer
FILES = 10  # of the standard library and of each package
WORDS = [
    "the",
    "little",
    "fox",
    "saw",
    "a",
    "big",
    "red",
    "ball",
    "and",
    "said",
    "hello",
    "to",
    "the",
    "bear",
    "in",
    "the",
    "wood",
]


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)

    def write(path: str, rows: list[dict]) -> None:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")

    stories = [{"text": " ".join(rng.choice(WORDS, 60))} for _ in range(60)]
    sums = [
        {"question": f"What is {n} + 1?", "answer": f"{n} + 1 = <<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"}
        for n in range(400)
    ]
    write("tinystories/train.jsonl", stories)
    write("tinystories/valid.jsonl", stories[:40])
    write("storybooks/cc_by_en.jsonl", [{"text": "# A title\nHello."}])
    write("gsm8k/train.jsonl", sums)
    write("gsm8k/test.jsonl", sums)
    return folder


@pytest.fixture(scope="module")
def corpus(corpus_folder):
    """Code is that of the first files of the standard library and of every package."""
    with pytest.MonkeyPatch.context() as patch:
        every = data.list_non_test_python_files
        patch.setattr(data, "list_non_test_python_files", lambda *where: every(*where)[:FILES])
        texts = load_documents(corpus_folder)
    texts["code"] = texts["code"][:300]
    tokenizer = train_tokenizer([text for domain in texts.values() for text in domain], vocab_size=512)
    return TokenCorpus(texts, tokenizer), tokenizer, texts


def test_the_tokenizer_knows_every_byte_and_starts_a_text(corpus):
    _, tokenizer, _ = corpus
    text = "Zoë 🦊 \x00\x7f 猫\n\tdef f(): return 12345"
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(tokenizer) == 512


def test_domains_are_marked_and_answers_are_clean(corpus):
    _, _, texts = corpus
    assert all(
        text.startswith("Question: What is") and "<<" not in text and "####" not in text for text in texts["problems"]
    )
    marked = sum(text.startswith("Story: ") for text in texts["stories"])
    assert 0 < marked < len(texts["stories"])
    assert any(text.startswith("# Python\n") for text in texts["code"])


def test_functions_are_cut_out_and_dedented():
    source = "class A:\n    def f(self):\n        x = 1\n        return x\n\ndef one_line(): pass\n"
    assert list(extract_functions_of_3_to_60_lines(source)) == ["def f(self):\n    x = 1\n    return x"]
    assert list(extract_functions_of_3_to_60_lines("def broken(:")) == []


def test_held_out_files_are_a_fixed_small_share():
    held_out = [name for name in map(str, range(4000)) if is_held_out_file(name)]
    assert 140 < len(held_out) < 260  # 5 % of 4,000 is 200, five standard deviations either way
    assert held_out == [name for name in map(str, range(4000)) if is_held_out_file(name)]


def test_rows_start_at_a_document(corpus):
    found, tokenizer, _ = corpus
    rows = found.draw_rows_from_document_starts("stories", 40, 16, np.random.default_rng(0))
    assert (rows[:, 0] == tokenizer.bos_token_id).all()
    assert found.draw_rows_of_mixed_domains(8, 40, np.random.default_rng(0)).shape == (8, 40)
    with pytest.raises(ValueError, match="fewer than one row of 10000000"):
        found.draw_rows_from_document_starts("stories", 10_000_000, 1, np.random.default_rng(0))


def test_muon_pushes_every_direction_alike():
    torch.manual_seed(0)
    singular = torch.linalg.svdvals(orthogonalise(torch.randn(3, 40, 24)))
    assert float(singular.min()) > 0.6 and float(singular.max()) < 1.3
    weight = torch.nn.Parameter(torch.zeros(40, 24))
    weight.grad = torch.randn(40, 24)
    Muon([weight], lr=0.1).step()
    assert float((weight.detach() * weight.grad).sum()) < 0


def test_the_draft_is_best_when_it_is_the_target():
    logits = torch.randn(2, 5, 30)
    tokens = torch.arange(30).expand(2, 5, 30)
    p = logits.softmax(-1)
    entropy = -(p * p.log()).sum(-1).mean()
    assert distillation_loss(logits, tokens, p) == pytest.approx(float(entropy), abs=1e-5)
    assert distillation_loss(logits + torch.randn(2, 5, 30), tokens, p) > entropy + 0.05


def test_every_size_of_a_target_has_a_draft():
    assert DRAFT_SHAPES.keys() == pretraining.SIZES.keys()


def test_a_run_resumes_where_it_stopped(tmp_path):
    def linear() -> torch.nn.Linear:
        torch.manual_seed(0)
        return torch.nn.Linear(8, 8)

    def learn(model: torch.nn.Linear, tokens: int) -> None:
        def loss_of(step: int, share: float):
            x = torch.from_numpy(np.random.default_rng(step).normal(size=(16, 8))).float()
            steps.append(step)
            return (model(x) - x).square().mean(), 10

        train_or_resume_within_budget(
            "toy", model, loss_of, lambda: {"error": 0.0}, tmp_path, TrainingBudget(1.0, tokens), learning_rate=0.05
        )

    steps: list[int] = []
    first = linear()
    learn(first, 40)
    again = linear()
    learn(again, 80)
    assert steps == list(range(8))
    assert not torch.equal(first.weight, again.weight)
    assert [json.loads(line)["tokens"] for line in (tmp_path / "toy.log.jsonl").read_text().splitlines()] == [40, 80]


def test_a_pair_is_trained_shipped_and_raced(corpus, tmp_path, monkeypatch):
    """The recipe for a handful of steps, with a target in float16 and in eight bits: it loads, lanes agree, training can go on."""
    from engine.models.loading import load_pair_anew
    from engine.models.pairs import Pair
    from engine.race import Race, Settings

    found, tokenizer, _ = corpus
    monkeypatch.setattr(pretraining, "SIZES", {"tiny": (64, 2, 1, 128)})
    monkeypatch.setattr(pretraining, "LONG_ROW", 320)
    monkeypatch.setitem(distilling.ROWS, "cpu", 4)
    monkeypatch.setitem(writing.AT_ONCE, "cpu", 8)
    how = {
        "size": "tiny",
        "device": "cpu",
        "minutes": 1,
        "batch_tokens": 1024,
        "rate": 4e-3,
        "bf16": False,
        "compile": False,
        "dropout": 0.1,
        "decay": 0.1,
    }
    target = pretraining.pretrain_target(
        found, found, tmp_path, argparse.Namespace(**how, tokens=3000, start=None), 512
    )
    sizes = {"target_written_rows": 8, "hidden_layers_heads_mlp": (64, 1, 2, 96)}
    draft = distill_draft(target, found, found, tmp_path, TrainingBudget(1, 2048), **sizes)
    write_checkpoint(draft, tokenizer, tmp_path / "draft")
    before = pretraining.validation_loss_by_domain(target, found)
    for dtype in ("fp32", "8-bit"):
        write_checkpoint(target, tokenizer, tmp_path / "target", dtype == "8-bit")
        (tmp_path / dtype).mkdir()
        one_step = argparse.Namespace(**how, tokens=1, start=tmp_path / "target")  # at a hundredth of the rate
        more = pretraining.pretrain_target(found, found, tmp_path / dtype, one_step, 512)
        assert pretraining.validation_loss_by_domain(more, found) == pytest.approx(before, abs=0.05)
        pair = load_pair_anew(Pair("toy", "toy pair", str(tmp_path / "target"), str(tmp_path / "draft")), device="cpu")
        race = Race(pair, Settings("Story: the little fox", temperature=0.8, max_new_tokens=24))
        for _ in race.run():
            pass
        assert race.result()["identical"] is True and pair.dtype == dtype


def grouped_heads(tokenizer) -> Qwen2ForCausalLM:
    """A target in Hub format that is not the embedded one."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=320, tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip


def grown() -> LlamaForCausalLM:
    """A target that grew from one half as wide."""
    torch.manual_seed(0)
    small, large = (pretraining.build_untrained_llama(hidden, 4, hidden // 32, 2 * hidden, 512) for hidden in (32, 64))
    pretraining.copy_weights_preserving_function(small, large)
    return large


@pytest.fixture(scope="module")
def observed(corpus, tmp_path_factory):
    """Returns a target's folder, kept in eight bits or not. Trainings work beside it, so all share the rows that one has written."""

    @functools.cache
    def of(eight_bits: bool):
        _, tokenizer, _ = corpus
        folder = tmp_path_factory.mktemp("observed")
        write_checkpoint(grown() if eight_bits else grouped_heads(tokenizer), tokenizer, folder / "target", eight_bits)
        return folder

    return of


@pytest.mark.parametrize(
    ("name", "eight_bits"),
    daily([*((name, True) for name in learned.RECIPES), ("eagle", False), ("dflash", False)], *TRAINED_OFTEN),
)
def test_a_learned_drafter_is_trained_for_any_target_and_raced(
    name, eight_bits, corpus, observed, tmp_path, monkeypatch
):
    """Trained from the command's own entry, resumed, loaded and raced without changing a token.

    The target grew and is kept in eight bits, and the drafter is half as wide: all but one share the target's tables. Or it has grouped
    heads, and the drafter is as wide.
    """
    from engine.models.loading import load_pair_anew
    from engine.models.pairs import Pair
    from engine.race import Race, Settings

    (_, _, texts), folder = corpus, observed(eight_bits)
    target, work = folder / "target", folder / "work"
    monkeypatch.setattr(data, "load_documents", lambda folder, held_out=False: texts)
    monkeypatch.setitem(writing.AT_ONCE, "cpu", 8)
    monkeypatch.setattr(learned, "HELD_OUT_ROWS", 16)
    options = argparse.Namespace(
        recipe=name, pair="embedded", target=str(target), revision=None, data=tmp_path, device="cpu",
        work=work, out=tmp_path / "drafters", own_rows=8, minutes=1.0, tokens=3000,
        domains=["stories", "problems"], segments=2, start=None, bf16=eight_bits,
        hidden=32 if eight_bits else None, rows=None, shared_tables=name != "dspark", raw=False, own_vocab=None, curve=None,
    )  # fmt: skip
    learned.train_learned_drafter(options)
    options.tokens = 6000
    learned.train_learned_drafter(options)
    [log] = work.rglob(f"{name}.log.jsonl")
    figures = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(figures) == 2 and figures[1]["step"] > figures[0]["step"]
    assert 0 <= figures[1]["depth 1 top1"] <= 1
    [checkpoint] = work.rglob(f"{name}.pt")
    checkpoint.unlink()
    monkeypatch.delattr(data, "load_documents")  # a corpus that was tokenised once is not read again
    options.start, options.tokens = tmp_path / "drafters" / name, 1
    before = load_file(options.start / "model.safetensors")
    assert bool(before.keys() & {"embedding", "head", "embed_tokens.weight"}) == (eight_bits and name == "dspark")
    # Goes on from those weights: one step at a hundredth of the rate changes them little
    learned.train_learned_drafter(options)
    for key, each in load_file(options.start / "model.safetensors").items():
        assert torch.allclose(each.float(), before[key].float(), atol=1e-3, rtol=1e-2), key
    pair = load_pair_anew(Pair("toy", "toy", str(target), drafters_folder=str(tmp_path / "drafters")), device="cpu")
    assert pair.net(name).config.target_hidden == (64 if eight_bits else 0)
    [shard] = work.rglob("rows/shard-00000.safetensors")
    rows = load_file(shard)
    _, served = pair.target.open_session(learned.ROW, feature_layers=True).prefill(rows["ids"][0].tolist())
    # Of the very forward that serves; without eight bits some would be 0.01 away
    assert float((served - rows["features"][0]).abs().max()) < 4e-3
    systems = ("vanilla", f"{name}/best_first/token_match")
    race = Race(pair, Settings("Story: the little fox", systems, temperature=0.8, max_new_tokens=24))
    for _ in race.run():
        pass
    assert race.result()["identical"] is True


def test_a_draft_is_trained_alone_for_a_pair_that_has_a_target(corpus, tmp_path, monkeypatch):
    """The command writes a draft of the size that is asked for, which guesses what the pair's target writes."""
    from engine.models.loading import load_pair_anew
    from engine.models.pairs import Pair

    _, tokenizer, texts = corpus
    torch.manual_seed(0)
    write_checkpoint(pretraining.build_untrained_llama(64, 2, 1, 128, 512), tokenizer, tmp_path / "target")
    pair = Pair("toy", "toy pair", str(tmp_path / "target"), str(tmp_path / "draft"))
    monkeypatch.setattr(pairs, "PAIRS", {"toy": pair})
    monkeypatch.setattr(data, "load_documents", lambda folder, held_out=False: texts)
    monkeypatch.setitem(DRAFT_SHAPES, "11M", (64, 2, 1, 96))
    monkeypatch.setitem(distilling.ROWS, "cpu", 4)
    monkeypatch.setitem(writing.AT_ONCE, "cpu", 8)
    recipes.main(
        argparse.Namespace(
            recipe="draft", pair="toy", size="11M", data=tmp_path, device="cpu", work=tmp_path / "work",
            out=tmp_path / "draft", own_rows=8, minutes=0.001, bf16=False,
        )
    )  # fmt: skip
    assert load_pair_anew(pair, device="cpu").draft.config.num_hidden_layers == 2
    [log] = (tmp_path / "work").rglob("draft.log.jsonl")
    assert 0 <= json.loads(log.read_text().splitlines()[-1])["stories top1"] <= 1


def test_a_gpu_draws_the_rows_that_shards_would_hold_and_asks_the_target_anew(corpus, tmp_path):
    """`LiveBatches` stands in for `FeatureShards` on a GPU; on a CPU both see the same of the same rows."""
    found, tokenizer, _ = corpus
    target = grouped_heads(tokenizer).eval()
    rows = found.draw_rows_of_mixed_domains(6, 64, np.random.default_rng(0)).numpy().astype(np.int32)
    write_feature_shards(target, rows, tmp_path)
    shards, observed = FeatureShards(tmp_path), LiveBatches(target, rows)
    assert torch.equal(observed.sample_target_tokens(), torch.from_numpy(rows).flatten())
    assert torch.isin(shards.sample_target_tokens(), shards.load_shard(0).tokens).all()
    for stored, anew in zip(shards.iterate_batches(4), observed.iterate_batches(4), strict=True):
        assert all(torch.allclose(a.float(), b.float(), atol=1e-2) for a, b in zip(stored, anew, strict=True))
    epoch = [row for step in range(3) for row in observed.shuffled_batch_of_step(step, 2).ids.tolist()]
    assert sorted(epoch) == sorted(rows.tolist())
    again = LiveBatches(target, rows).shuffled_batch_of_step(4, 2)
    assert torch.equal(observed.shuffled_batch_of_step(4, 2).ids, again.ids)


def test_a_folder_without_the_texts_says_which_are_missing(tmp_path):
    with pytest.raises(
        ValueError, match=r"There is no gsm8k/train\.jsonl in the folder that --data names\. Give --data a folder"
    ):
        data.load_math_problem_documents(tmp_path, held_out=False)
