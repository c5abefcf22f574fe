"""First drafters: requests and answers that a target writes by itself, exact counts, what resumes, and the command's own entry."""

import json
from argparse import Namespace
from itertools import cycle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from engine.lab.train import features, learned, recipes, writing
from engine.lab.train.features import (
    DrafterVocabularyLabelMapper,
    FeatureShards,
    compute_training_batch,
    most_frequent_tokens,
)
from engine.lab.train.learned import choose_own_vocabulary_size, describe_vocabulary_coverage
from engine.lab.train.self_written import conversations, rows
from engine.lab.train.self_written.conversations import (
    ChatMarkers,
    Conversation,
    chat_markers_of,
    tokenise_request_ending,
)
from engine.lab.train.self_written.rows import (
    count_shard_rows,
    write_conversation_shards,
    write_conversations_as_training_batch,
)
from engine.models.loading import load_pair_anew
from engine.models.pairs import Pair
from engine.sampling import build_generator_from_key
from helpers import checkpoints
from helpers.checkpoints import SIZES, byte_tokenizer
from helpers.families import daily
from helpers.pairs import tiny_llama

LENGTH = 40
TEMPLATE = (
    "{% for m in messages %}[{{ m['role'][0] }}]{{ m['content'] }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}[a]{% endif %}"
)
ONCE = "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}[u]{{ messages[0]['content'] }}<|endoftext|>[a]"
END = 256


def chat_tokenizer(template: str = TEMPLATE):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture
def short(monkeypatch):
    """Rows of few tokens, and shards of few rows."""
    for room in (writing, features, rows):
        monkeypatch.setattr(room, "ROW", LENGTH)
    for room in (features, rows):
        monkeypatch.setattr(room, "SHARD", 8)


def ids(text: str) -> list[int]:
    return byte_tokenizer()(text)["input_ids"]


def walk(conversation: Conversation, written, count: int) -> list[int]:
    """A row of `count` tokens, in which the target writes one token of `written` after the other."""
    row = []
    while len(row) < count:
        row.append(
            conversation.take_forced_or_target_token(next(written) if conversation.is_next_token_from_target else -1)
        )
    return row


def test_a_conversation_goes_from_turn_to_turn_as_the_template_says():
    turns = chat_markers_of(chat_tokenizer(), [END])
    assert (turns.before_first_request, turns.before_answer) == (ids("[u]"), [END, *ids("[a]")])
    assert turns.before_next_request == [END, *ids("[u]")] and turns.message_end_ids == {END}
    row = Conversation(turns, 0.8, lambda: None)
    heats = []
    written = iter([*ids("hi"), END, *ids("yo!"), END, *ids("more")])
    found = []
    for _ in range(20):
        heats.append(row.current_temperature)
        found.append(row.take_forced_or_target_token(next(written) if row.is_next_token_from_target else -1))
    assert byte_tokenizer().decode(found) == "[u]hi<|endoftext|>[a]yo!<|endoftext|>[u]more"
    assert heats[3] == 1.0 and heats[10] == 0.8


def test_given_requests_stand_in_the_users_turn_and_are_text_alone():
    tokenizer = chat_tokenizer()
    given = tokenise_request_ending(tokenizer, "a<|endoftext|>b", 100)
    assert END not in given and tokenise_request_ending(tokenizer, "abcdef", 3) == ids("def")
    row = walk(Conversation(chat_markers_of(tokenizer, [END]), 0.0, lambda: ids("sum?")), cycle(ids("x")), 14)
    assert byte_tokenizer().decode(row) == "[u]sum?<|endoftext|>[a]xxx"


def test_a_request_that_never_ends_is_ended(monkeypatch):
    monkeypatch.setattr(conversations, "LONGEST_REQUEST", 4)
    row = walk(Conversation(chat_markers_of(chat_tokenizer(), [END]), 0.0, lambda: None), cycle(ids("x")), 14)
    assert byte_tokenizer().decode(row) == "[u]xxxx<|endoftext|>[a]xxx"


def test_a_template_for_one_message_begins_anew_behind_an_answer():
    turns = chat_markers_of(chat_tokenizer(ONCE), [END])
    row = walk(Conversation(turns, 0.0, lambda: None), iter([*ids("q"), END, *ids("r"), END, *ids("s")]), 13)
    assert byte_tokenizer().decode(row) == "[u]q<|endoftext|>[a]r<|endoftext|>[u]"


def test_a_target_without_a_template_writes_text_after_text():
    for tokenizer, raw in ((byte_tokenizer(), False), (chat_tokenizer(), True)):
        turns = chat_markers_of(tokenizer, [END], raw)
        assert walk(Conversation(turns, 0.8, lambda: None), iter([*ids("ab"), END, *ids("c")]), 5) == [
            END,
            *ids("ab"),
            END,
            *ids("c"),
        ]
    begun = ChatMarkers([7], [], [7], frozenset([END]), has_requests=False)  # one token begins, another ends
    assert walk(Conversation(begun, 0.8, lambda: None), iter([5, END, 6]), 5) == [7, 5, END, 7, 6]
    nameless = byte_tokenizer()
    nameless.eos_token = None
    with pytest.raises(ValueError, match="no token that begins or ends a text"):
        chat_markers_of(nameless, [])


def chat_model(**sizes) -> LlamaForCausalLM:
    """A random Llama over the tokens of `chat_tokenizer`."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_hidden_layers": 4, **sizes})).eval()


def chats(first: int, count: int) -> list[Conversation]:
    turns = chat_markers_of(chat_tokenizer(), [END])
    return [Conversation(turns, (0.0, 0.8)[row % 2], lambda: None) for row in range(first, first + count)]


def test_rows_are_what_the_target_sees_of_them_and_greedy_answers_are_its_favourites(short):
    """One forward a token gives what `compute_training_batch` gives of the whole rows."""
    model = tiny_llama(0, layers=4)
    turns = ChatMarkers([7, 8], [9], [10, 7], frozenset([11]))
    told = []
    made = [Conversation(turns, 0.0, lambda: [3, 4]) for _ in range(3)]
    batch = write_conversations_as_training_batch(model, made, build_generator_from_key("test"), told.append)
    seen = compute_training_batch(model, batch.ids.long()).to_cpu_storage_types()
    assert sum(told) == 3 * LENGTH and batch.ids.shape == (3, LENGTH)
    assert batch.ids[:, :5].tolist() == [[7, 8, 3, 4, 9]] * 3
    for name in ("features", "scales", "p"):
        assert torch.allclose(getattr(batch, name).float(), getattr(seen, name).float(), atol=5e-3, rtol=5e-3), name
    assert torch.equal(batch.tokens[..., 0], seen.tokens[..., 0])
    free = batch.ids[0, 5:12]
    assert torch.equal(free, batch.tokens[0, 4:11, 0]) or 11 in free


def test_exactly_so_many_rows_are_written_and_a_run_that_was_cut_off_writes_the_same(short, tmp_path, monkeypatch):
    model = chat_model()
    write_conversation_shards(model, chats, 19, tmp_path / "whole" / "rows")
    assert [count_shard_rows(path) for path in sorted((tmp_path / "whole" / "rows").glob("*.safetensors"))] == [8, 8, 3]

    def cut_off(*given, kept=write_conversations_as_training_batch):
        if len(list((tmp_path / "again" / "rows").glob("shard-*.safetensors"))) == 1:
            raise KeyboardInterrupt
        return kept(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rows, "write_conversations_as_training_batch", cut_off)
        write_conversation_shards(model, chats, 19, tmp_path / "again" / "rows")
    write_conversation_shards(model, chats, 19, tmp_path / "again" / "rows")
    for path in sorted((tmp_path / "whole" / "rows").glob("*.safetensors")):
        again = load_file(tmp_path / "again" / "rows" / path.name)
        assert all(torch.equal(each, again[name]) for name, each in load_file(path).items())


def test_a_large_vocabulary_is_cut_to_what_the_target_writes(short, tmp_path):
    write_conversation_shards(chat_model(), chats, 8, tmp_path)
    sample = FeatureShards(tmp_path).sample_target_tokens()
    kept = most_frequent_tokens(sample, 50, 257)
    counts = np.bincount(sample.numpy(), minlength=257)
    assert counts[kept.numpy()].sum() == np.sort(counts)[-50:].sum() and torch.equal(kept, kept.sort().values)
    own, p, mass = DrafterVocabularyLabelMapper(torch.tensor([3, 5]), 10)(
        torch.tensor([[5, 4, 3]]), torch.tensor([[0.5, 0.3, 0.2]])
    )
    assert own.tolist() == [[1, 0, 0]] and torch.allclose(mass, torch.tensor([0.7]))
    assert torch.allclose(p, torch.tensor([[0.5 / 0.7, 0, 0.2 / 0.7]]))


def test_logits_in_pieces_give_the_same_loss_and_gradient(monkeypatch):
    torch.manual_seed(0)
    head = torch.randn(30, 8)
    tokens, p = torch.randint(0, 30, (2, 7, 4)), torch.rand(2, 7, 4)
    found = []
    for most in (1 << 25, 90):  # all at once, and three states at a time
        monkeypatch.setattr(features, "LOGITS", most)
        states = torch.linspace(-1, 1, 112).view(2, 7, 8).requires_grad_()
        seen = []
        each = features.chunked_soft_cross_entropy(
            lambda x, seen=seen: seen.append(len(x)) or x @ head.T, 30, states, tokens, p
        )
        each.sum().backward()
        found.append((each.detach(), states.grad))
    assert max(seen) == 3 and each.shape == (2, 7)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))


def test_greedy_texts_without_a_template_begin_at_random():
    """Else two rows in three would be one and the same."""
    row = Conversation(chat_markers_of(byte_tokenizer(), [END]), 0.0, lambda: None)
    heats = []
    for _ in range(30):
        heats.append(row.current_temperature if row.is_next_token_from_target else None)
        row.take_forced_or_target_token(5)
    assert heats == [None, *[1.0] * (conversations.OPENING + 1), *[0.0] * (28 - conversations.OPENING)]


def test_own_vocabularies_are_small_for_large_targets_and_as_ever_for_the_embedded():
    assert (
        choose_own_vocabulary_size("eagle", 4096) == 3072
        and choose_own_vocabulary_size("eagle", 49_152) == choose_own_vocabulary_size("dspark", 49_152) == 8_000
    )
    assert (
        choose_own_vocabulary_size("dspark", 4096)
        == choose_own_vocabulary_size("medusa", 4096)
        == choose_own_vocabulary_size("parallel", 49_152)
        == 0
    )
    assert (
        choose_own_vocabulary_size("medusa", 49_152) == 8_000
        and choose_own_vocabulary_size("dflash", 49_152, 49_152) == 0
    )
    with pytest.raises(ValueError, match=r"--own-vocab must be between 1 and 300, .* got 400"):
        choose_own_vocabulary_size("eagle", 300, 400)
    with pytest.raises(ValueError, match="no meaning for parallel"):
        choose_own_vocabulary_size("parallel", 300, 40)


@pytest.mark.parametrize("name", ["eagle", "dspark", "dflash", "medusa"])
def test_a_net_of_49152_tokens_is_small_and_stores_none_of_its_targets_tables(name):
    """Sizes are those of SmolLM2-135M. Together with its optimiser, four numbers a weight, it stays below a third of a GiB."""
    target = chat_model(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_hidden_layers=1
    )
    target.config.num_hidden_layers = 30  # a net reads the target's tables and its sizes
    sample = torch.arange(49_152)
    net = learned.RECIPES[name].build_untrained_net(target, learned.drafter_config_for(name, target), sample)
    stored = sum(each.numel() * each.element_size() for each in net.tensors_to_save().values())
    assert stored < {"eagle": 22.5e6, "dspark": 22.5e6, "dflash": 19e6, "medusa": 3e6}[name]
    trained = sum(each.numel() for each in net.parameters() if each.requires_grad)
    assert 16 * trained < 2**30 / 3
    assert "8,000 of its target's 49,152 tokens, which are 16.3 %" in describe_vocabulary_coverage(net, sample)


@pytest.fixture
def options(tmp_path, short, monkeypatch):
    """What the command is asked for a chat model with no texts and no prompts, for a few steps."""
    checkpoints.write(tmp_path / "target", num_hidden_layers=8, max_position_embeddings=512)
    chat_tokenizer().save_pretrained(tmp_path / "target")
    monkeypatch.setattr(learned, "SMALL", 200)
    monkeypatch.setattr(learned, "OWN_MOST", 100)
    monkeypatch.setattr(learned, "ROW", LENGTH)
    return Namespace(
        recipe="eagle", prompts=None, data=None, start=None, out=tmp_path / "drafters", work=tmp_path / "work",
        pair="small", target=str(tmp_path / "target"), revision=None, raw=False, device="cpu", own_rows=10, minutes=1.0,
        tokens=2_000, rows=4, hidden=None, domains=list(learned.DOMAINS), bf16=False, own_vocab=None, shared_tables=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", daily(["eagle", "dspark", "dflash", "medusa"], "eagle", "dspark"))
def test_one_command_makes_a_first_drafter_for_a_chat_model_and_it_races(name, options, capsys):
    """Without texts and prompts. It guesses 100 of 257 tokens, is loaded like any other and changes no token."""
    from engine.race import Race, Settings

    options.recipe = name
    recipes.main(options)
    assert f"{name} guesses 100 of its target's 257 tokens" in capsys.readouterr().out
    [held] = options.work.rglob("held_out/*.safetensors")
    assert (
        sum(count_shard_rows(path) for path in options.work.rglob("rows/*.safetensors")) == 10
        and count_shard_rows(held) == 2
    )
    curve = (options.out / name / "curve.jsonl").read_text().splitlines()
    assert json.loads(curve[-1])["tokens"] >= 2_000
    pair = load_pair_anew(Pair("own", "own", options.target, drafters_folder=str(options.out)), device="cpu")
    assert len(pair.net(name).vocabulary) == 100
    race = Race(pair, Settings("Hello", ("vanilla", f"{name}/best_first/token_match"), max_new_tokens=24))
    for _ in race.run():
        pass
    assert race.result()["identical"] is True
    options.start, options.tokens = options.out / name, 1  # goes on from those weights
    before = load_file(options.start / "model.safetensors")
    next(options.work.rglob(f"{name}.pt")).unlink()
    recipes.main(options)
    after = load_file(options.start / "model.safetensors")
    assert before.keys() == after.keys() and all(
        torch.allclose(after[key].float(), each.float(), atol=1e-3, rtol=1e-2) for key, each in before.items()
    )


@pytest.mark.slow
def test_own_prompts_need_no_drafter_to_start_from(options, tmp_path, capsys):
    options.prompts = tmp_path / "my.jsonl"
    options.prompts.write_text("\n".join(json.dumps(f"Number {number}?") for number in range(12)), encoding="utf-8")
    figures = recipes.main(options)
    assert figures["held_out"] == 3 and figures["tokens_a_round"] >= 1
    assert "tokens a round on 3 held-out prompts; plain decoding writes one." in capsys.readouterr().out
    assert (options.out / "eagle" / "config.json").is_file()


def test_rows_that_are_there_are_learned_from(options, monkeypatch):
    """A folder with rows/, held_out/ and `ready` is used as it is: nothing is written into these, and nothing is written anew."""
    model = learned.load_model(learned.Checkpoint(options.target), torch.device("cpu"), torch.float32)
    for name in ("rows", "held_out"):
        write_conversation_shards(model, chats, 8, options.work / name)
    (options.work / learned.READY).touch()
    files = {path: path.stat().st_mtime_ns for path in options.work.rglob("*.safetensors")}

    def refuse(*_, **__):
        raise AssertionError("rows were written")

    monkeypatch.setattr(learned, "write_conversation_shards", refuse)
    options.tokens = 200
    recipes.main(options)
    assert {path: path.stat().st_mtime_ns for path in options.work.rglob("*.safetensors")} == files


def test_an_answer_that_never_ends_is_ended_and_the_next_request_follows(monkeypatch):
    monkeypatch.setattr(conversations, "LONGEST_ANSWER", 3)
    asked = iter(["one", "two"])
    row = Conversation(chat_markers_of(chat_tokenizer(), [END]), 0.0, lambda: ids(next(asked)))
    written = byte_tokenizer().decode(walk(row, cycle(ids("x")), 26))
    assert written == "[u]one<|endoftext|>[a]xxx<|endoftext|>[u]two<|endoftext|>[a]xx"
