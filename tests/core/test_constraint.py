"""Constraints: what a text may be holds for every system, every guess and every rule's law; wrong and hostile ones get a sentence."""

import json
import random
import re
from dataclasses import replace

import pytest
import torch

from engine.batch import decode_batch_round_by_round
from engine.contracts import Drafter
from engine.custom_generate import treerace
from engine.decode import decode
from engine.lab.pays.doctor import select_lane_as_run
from engine.models.constraint import GUESSES, compile_constraint, compile_pair_constraint
from engine.page.screens.break_distance import measure_broken_system_distance
from engine.race import Race, Settings
from engine.record.constraint import validate_constraint
from engine.record.race_file import Record
from engine.rounds.guiding import ConstraintGuidedDrafter, mask_forbidden_logits
from engine.rounds.round_gpu import DeviceRoundRunner
from engine.sampling import Sampling
from engine.systems import SYSTEMS, resolve_system_name
from engine.tree import DraftTree
from helpers.pairs import LETTERS, NAMES, STOP, bound, bound_pair, tiny_llama

PROMPT = "Once: "


@pytest.fixture(scope="module")
def pair():
    return bound_pair()


def raced(pair, *systems: str, **settings) -> list:
    race = Race(pair, Settings(PROMPT, systems, **{"max_new_tokens": 60, **settings}))
    list(race.run())
    return [lane.trace for lane in race.lanes]


def text_of(pair, trace) -> str:
    """Without the stop token, which the tiny pair's tokenizer writes as a character."""
    assert trace.steps[-1].end == "stop" and trace.tokens[-1] == STOP
    return pair.tokenizer.decode(trace.tokens[:-1])


def is_person(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"name", "age"} and found["name"] in ("Tom", "Tim", "Lily") and 1 <= found["age"] <= 99


# ---- texts


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_systems_text_keeps_to_the_schema_and_is_plain_decodings_where_that_is_promised(pair, name):
    for temperature in (0.0, 0.9):
        plain, mine = raced(pair, "vanilla", name, temperature=temperature, constraint=NAMES, seed=2)
        assert is_person(text_of(pair, plain)) and is_person(text_of(pair, mine))
        if SYSTEMS[name].guarantee == "tokens" or temperature == 0:
            assert mine.tokens == plain.tokens


@pytest.mark.parametrize("guesses", GUESSES)
def test_how_drafts_are_guided_changes_no_token(pair, guesses):
    names = ("vanilla", "tree", "auto", "lookup", "suffix", "specblock", "medusa")
    for temperature in (0.0, 0.9):
        traces = raced(pair, *names, temperature=temperature, constraint=LETTERS, guesses=guesses, seed=4)
        assert len({tuple(trace.tokens) for trace in traces}) == 1
        assert re.fullmatch("[ab]{2,6}(xyz|xyw)[0-9]{1,3}", text_of(pair, traces[0]))


SUMS = """lark:
start: sum "."
sum: product ("+" product)*  // a context-free one: brackets nest
product: NUMBER | "(" sum ")"
NUMBER: /[1-9]/
"""


def test_a_grammar_binds_every_systems_text_and_brackets_close(pair):
    """No regular expression says that. What is Lark's own passes, `<` and `@` in a text included."""
    how = {"constraint": SUMS, "max_new_tokens": 90, "seed": 5}
    for temperature in (0.0, 0.9):
        traces = raced(pair, "vanilla", "tree", "forced", "lookup", temperature=temperature, **how)
        assert len({tuple(trace.tokens) for trace in traces}) == 1
    text = text_of(pair, traces[0])
    assert text.endswith(".") and re.fullmatch("[1-9+()]+", text[:-1]) and eval(text[:-1]) > 0
    plain = 'lark:start: "<a> @b %json" x /c::/\n%ignore " "\nx: "[" INT "]"  # <d>\n%import common.INT'
    assert validate_constraint(plain) == plain and compile_pair_constraint(pair, plain)


def test_many_seeds_write_many_texts_and_all_keep_to_the_pattern(pair):
    texts = {text_of(pair, raced(pair, "tree", temperature=1.5, constraint=LETTERS, seed=seed)[0]) for seed in range(8)}
    assert len(texts) > 4 and all(re.fullmatch("[ab]{2,6}(xyz|xyw)[0-9]{1,3}", text) for text in texts)


def test_without_a_constraint_the_forced_drafter_is_plain_decoding(pair):
    plain, forced = raced(pair, "vanilla", "forced", max_new_tokens=24)
    assert forced.tokens == plain.tokens and forced.tau == 1


def test_forced_tokens_are_guessed_without_a_forward(pair):
    [forced] = raced(pair, "forced", constraint=NAMES)
    assert forced.draft_forwards == 0 and forced.tau > 3
    assert all(verdict in ("root", "accepted") for step in forced.steps for verdict in step.verdicts)


def test_the_recorded_p_is_the_masked_one(pair):
    [trace] = raced(pair, "tree", constraint=NAMES, temperature=0.9)
    first = trace.steps[0]
    assert first.burst[0] == pair.tokenizer("{")["input_ids"][0] and first.p[1] == pytest.approx(1)


def test_a_batch_writes_the_texts_that_each_prompt_gets_alone(pair):
    prompts = [[5, 9, 17], [80, 2], [33]]
    samplings = [bound(pair, NAMES, temperature=0.9, seed=seed) for seed in range(3)]
    written = [[] for _ in prompts]
    for number, done in decode_batch_round_by_round(pair, SYSTEMS["tree"], prompts, samplings, 50):
        written[number] += done.burst
    for prompt, sampling, tokens in zip(prompts, samplings, written, strict=True):
        shape = {"depth": 1, "width": 1, "nodes": 2}
        rounds = resolve_system_name("vanilla").open_rounds(pair, 200, shape, sampling)
        assert tokens == [token for done in decode(rounds, prompt, 50, pair.stop_ids, 150) for token in done.burst]
        assert is_person(pair.tokenizer.decode(tokens[:-1]))


def test_under_a_constraint_a_lane_takes_no_rounds_on_the_device(pair):
    shape, device = {"depth": 2, "width": 2, "nodes": 4}, torch.device("cpu")
    assert isinstance(
        resolve_system_name("tree").open_rounds(pair, 64, shape, Sampling(device=device)), DeviceRoundRunner
    )
    assert not isinstance(
        resolve_system_name("tree").open_rounds(pair, 64, shape, bound(pair, NAMES, device=device)), DeviceRoundRunner
    )


def test_generate_writes_what_the_constraint_allows(pair):
    model, ids = tiny_llama(0), torch.tensor([[5, 9, 17]])
    how = {"custom_generate": treerace, "max_new_tokens": 60, "eos_token_id": STOP, "do_sample": False}
    text = model.generate(ids, **how, constraint=NAMES, constraint_tokenizer=pair.tokenizer)[0, 3:].tolist()
    assert text[-1] == STOP and is_person(pair.tokenizer.decode(text[:-1]))
    with pytest.raises(ValueError, match="give the model's tokenizer as constraint_tokenizer"):
        model.generate(ids, **how, constraint=NAMES)
    with pytest.raises(ValueError, match="needs a stop token"):
        free = {**how, "eos_token_id": None}
        model.generate(ids, **free, constraint=NAMES, constraint_tokenizer=pair.tokenizer)


# ---- the mask


@pytest.mark.parametrize(("constraint", "begun"), [(LETTERS, ("a", "abba", "abxy")), (SUMS, ("(", "3+(4", "((2)"))])
def test_a_guide_answers_for_every_path_as_one_that_goes_there_alone(pair, constraint, begun):
    """Random walks over a tree of paths, which moves one matcher back and forth."""
    made = random.Random(3)
    for taken in ([], *(pair.tokenizer(text)["input_ids"] for text in begun)):
        guide, paths = compile_pair_constraint(pair, constraint).create_guide_at_text_start(), [()]
        guide.advance(taken)
        for _ in range(40):
            path = made.choice(paths)
            row = guide.allowed_mask(path)
            if row is not None:
                paths.append((*path, made.choice(row.nonzero().flatten().tolist())))
        for path in made.sample(paths, len(paths)):
            fresh = compile_pair_constraint(pair, constraint).create_guide_at_text_start()
            fresh.advance([*taken, *path])
            here, there = guide.allowed_mask(path), fresh.allowed_mask()
            assert (here is None) == (there is None) and (here is None or torch.equal(here, there))


def test_behind_forbidden_tokens_and_stops_nothing_is_masked(pair):
    guide, tree = compile_pair_constraint(pair, NAMES).create_guide_at_text_start(), DraftTree.from_root_token(9)
    brace, x = (pair.tokenizer(sign)["input_ids"][0] for sign in "{x")
    wrong, right = tree.add(0, x, 0.5, 0.5), tree.add(0, brace, 0.5, 0.5)
    tree.add(wrong, brace, 0.2, 0.2)
    logits = mask_forbidden_logits(guide, tree, torch.zeros(4, 256))
    assert [int(row.isfinite().sum()) for row in logits] == [1, 256, 1, 256] and right == 2
    guide.advance([x])
    assert guide.allowed_mask() is None and guide.over


class Sure(Drafter):
    """Guesses one token, and rules out all others."""

    title, draft_forward_count = "sure", 0

    def __init__(self, token: int):
        self.token = token

    def log_q(self, tree, nodes):
        rows = torch.full((len(nodes), 256), -torch.inf)
        rows[:, self.token] = 0
        return rows


def test_a_drafter_that_rules_out_all_that_is_allowed_guesses_evenly(pair):
    guide, tree = compile_pair_constraint(pair, LETTERS).create_guide_at_text_start(), DraftTree.from_root_token(9)
    a, b, x = (pair.tokenizer(sign)["input_ids"][0] for sign in "abx")
    [even] = ConstraintGuidedDrafter(Sure(x), guide).log_q(tree, [0]).exp()
    assert float(even[a]) == float(even[b]) == pytest.approx(0.5)
    [sure] = ConstraintGuidedDrafter(Sure(b), guide).log_q(tree, [0]).exp()
    assert float(sure[b]) == pytest.approx(1)


# ---- around it


def test_a_constraint_is_compiled_once(pair):
    assert compile_pair_constraint(pair, NAMES) is compile_pair_constraint(pair, NAMES)
    assert compile_pair_constraint(pair, "") is None
    with pytest.raises(ValueError, match="needs a stop token"):
        compile_constraint(pair.tokenizer, 256, frozenset(), NAMES)


def test_a_break_of_the_constraint_needs_one_and_then_leaves_it(pair):
    with pytest.raises(ValueError, match="tree!constraint breaks a constraint, and there is none"):
        Settings(PROMPT, ("tree", "tree!constraint"))
    right, wrong = raced(pair, "tree", "tree!constraint", constraint=NAMES)
    assert is_person(text_of(pair, right)) and wrong.tokens != right.tokens
    *_, found = measure_broken_system_distance(
        pair, Settings(PROMPT, ("tree", "tree!constraint"), constraint=NAMES, max_new_tokens=40)
    )
    assert found["wrong"] > 0.2 and found["worst"] > 0.9 and found["right"] < 1e-5 and found["places"] > 20


def test_a_remote_server_is_told_of_no_constraint(pair):
    with pytest.raises(ValueError, match="is told of no constraint"):
        Race(pair, Settings(PROMPT, ("vanilla", "remote"), constraint=NAMES))


def test_the_race_file_keeps_the_constraint_and_refuses_a_wrong_one(pair):
    race = Race(pair, Settings(PROMPT, ("vanilla", "tree"), constraint=NAMES, max_new_tokens=20))
    list(race.run())
    record = race.to_record()
    assert Record.from_json(record.to_json()).lanes[1].trace.constraint == NAMES
    with pytest.raises(ValueError, match="was written under a constraint"):
        select_lane_as_run(record.lanes, "a.json", "A", None)
    for lane in record.lanes:
        lane.trace.constraint = "yes"
    with pytest.raises(ValueError, match="begins with json:"):
        Record.from_json(record.to_json())
    record.lanes[0].trace = replace(record.lanes[0].trace, constraint="")
    with pytest.raises(ValueError, match=r"begins with json:|differs from the first lane"):
        Record.from_json(record.to_json())
