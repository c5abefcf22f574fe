"""Races of targets with states: texts are plain decoding's, and what cannot be done with them is refused with a sentence."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from engine.batch import decode_batch_round_by_round
from engine.custom_generate import treerace
from engine.forward.recurrent.session import RecurrentSession
from engine.lab.bench import command as bench
from engine.lab.pays import batch
from engine.measure import peers
from engine.measure.other_engines import PeerGenerateFunctions
from engine.measure.ways import decode_plainly
from engine.models import loading
from engine.models.cache_memory import max_lane_cache_bytes
from engine.page.screens.break_distance import measure_broken_system_distance
from engine.race import Race, Settings
from engine.rounds import round as rounds_on_host
from engine.sampling import Sampling
from engine.systems import resolve_system_name
from engine.tree import LARGEST_TREE
from helpers.checkpoints import byte_tokenizer, pair_of, write
from helpers.families import PROMPT, STATES, daily, state_folder, state_model, state_pair

PLAIN = ("mamba2", "lfm2", "qwen3_next", "falcon_h1")  # one of each kind of layer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("states")


@pytest.mark.parametrize("name", daily(STATES, *PLAIN))
def test_greedy_text_is_that_of_generate(name, loaded):
    pair = loaded(name, drafted=False)
    race = raced(pair, "vanilla", tokens=20)
    trace = race.lanes[0].trace
    ids = torch.tensor([trace.prompt_tokens])
    expected = state_model(name).generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :].tolist()
    assert trace.tokens == expected and len(expected) == 20


def raced(pair, *systems: str, tokens: int, temperature: float = 0.0) -> Race:
    race = Race(pair, Settings("Once", systems, temperature=temperature, max_new_tokens=tokens, seed=3))
    for _ in race.run():
        pass
    return race


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draft")
    write(folder, max_position_embeddings=160)
    return folder


@pytest.fixture(scope="module")
def loaded(place, draft):
    """Returns a variant's pair whose texts have no end, with the draft model or without one; loaded when it is first asked for."""

    @cache
    def of(name: str, drafted: bool = True):
        return replace(state_pair(name, place, draft if drafted else None), stop_ids=frozenset())

    return of


@pytest.mark.parametrize("name", PLAIN)
def test_inside_generate_the_text_is_the_same(name):
    model, ids = state_model(name), torch.tensor([PROMPT])
    expected = model.generate(ids, max_new_tokens=30, do_sample=False)
    found = state_model(name).generate(
        ids, max_new_tokens=30, do_sample=False, custom_generate=treerace, system="lookup"
    )
    assert torch.equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", daily(STATES, *PLAIN))
def test_races_are_lossless(name, loaded):
    """A random draft is rejected nearly always, and lookup is accepted where a text repeats itself."""
    pair = loaded(name)
    for temperature in (0.0, 0.8):  # of one pair, whose costs are measured once
        race = raced(pair, "vanilla", "tree", "lookup", "recycling", "auto", tokens=20, temperature=temperature)
        assert race.result()["identical"] is True
        assert [len(lane.trace.tokens) for lane in race.lanes] == 5 * [20]


def test_a_step_tells_what_was_replayed_and_its_commit_takes_that_time(loaded, monkeypatch):
    """Nothing of a tree's path. A lane that keeps rows in a wrong order computes them again."""
    clock, right = SimpleNamespace(now=0.0), RecurrentSession.recompute_states_if_needed

    def replay(session, written):
        count = right(session, written)
        clock.now += count
        return count

    monkeypatch.setattr(rounds_on_host, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(RecurrentSession, "recompute_states_if_needed", replay)
    pair = loaded("mamba2")
    lane, wrong = raced(pair, "tree", "tree!trim", tokens=12).lanes
    assert {step.replayed for step in lane.trace.steps} == {0}
    assert all(step.seconds["commit"] == step.replayed for step in wrong.trace.steps)
    assert {step.replayed for step in wrong.trace.steps} <= {0, *(1 + len(step.path) for step in wrong.trace.steps)}


def test_a_model_with_states_is_refused_as_a_draft(place, draft):
    with pytest.raises(
        ValueError, match=r"\(mamba2\) cannot draft: it keeps a recurrent state, .*with attention alone"
    ):
        loading.load_pair_anew(pair_of(draft, state_folder("mamba2", place)), device="cpu")


@pytest.mark.parametrize("name", PLAIN)
def test_texts_written_together_are_those_alone(name, loaded):
    """Of one token, of many, and leaving at different times. Trees of all sizes share a forward, and nothing is replayed."""
    pair = replace(loaded(name), stop_ids=frozenset({3}))
    prompts = [PROMPT, [77], [9, 8, 7, 6] * 5]
    samplings = [Sampling(), Sampling(0.8, seed=1), Sampling()]
    written = {system: [[] for _ in prompts] for system in ("vanilla", "lookup")}
    for system, texts in written.items():
        for number, done in decode_batch_round_by_round(pair, resolve_system_name(system), prompts, samplings, 16):
            texts[number] += done.burst
            assert done.replayed == 0
    alone = [decode_plainly(pair, prompt, 16, sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
    assert written == {"vanilla": alone, "lookup": alone}


def test_pays_measures_batches_of_them_and_leaves_out_what_does_not_fit(loaded, monkeypatch):
    pair = loaded("mamba2", drafted=False)
    rows = 4 + 6 + LARGEST_TREE
    monkeypatch.setattr(
        "engine.models.cache_memory.max_bytes_of_all_caches", lambda pair: 3.5 * max_lane_cache_bytes(pair, rows)
    )
    found = batch.measure_throughput_by_batch_size(
        pair, ["Once", "Twi"], ["lookup"], [1, 3, 4], Settings("a prompt", max_new_tokens=6)
    )
    [refused], [lookup] = found["refused"], found["settings"]
    assert refused["batch"] == 4 and refused["why"].endswith("3 would fit.")
    assert [(each["batch"], each["identical"]) for each in lookup["points"]] == [(1, True), (3, True)]


def test_transformers_own_guesses_are_left_out_with_the_reason_and_plain_decoding_stays(loaded):
    pair = loaded("mamba2")
    found = peers.list_generate_functions(pair)
    assert [*found] == [peers.PLAIN]
    trace = raced(pair, "vanilla", tokens=12).lanes[0].trace
    assert found[peers.PLAIN](pair, trace.prompt_tokens, 12, 0.0) == trace.tokens
    [said] = peers.list_generate_functions_and_omissions(pair).notes
    reason = "transformers cannot take a guess back from the states of a Mamba2ForCausalLM."
    assert said == f"generate() assisted, generate() lookup are left out: {reason}"
    assert peers.merge_transformers_generate_with(pair, PeerGenerateFunctions(notes=["Another."])).notes == [
        said,
        "Another.",
    ]
    figures = bench.race_prompts_and_compute_figures(
        pair, ["Once upon"], Settings("Once upon", ("lookup",), max_new_tokens=6), PeerGenerateFunctions()
    )
    assert said in peers.format_peers(figures).splitlines()


def test_convolutions_alone_are_taken_back_and_these_ways_write_plain_decodings_text(loaded):
    """Their inputs are kept, and cut. LFM2's class does not call itself stateful, and here that is right."""
    pair = loaded("lfm2")
    ways = peers.list_generate_functions(pair)
    assert {peers.ASSISTED, peers.LOOKUP} <= set(ways) and peers.list_generate_functions_and_omissions(pair).notes == []
    for prompt in (PROMPT, [1, 2, 3] * 6):
        texts = [way(pair, prompt, 30, 0.0) for way in ways.values()]
        assert all(text == texts[0] for text in texts) and len(texts[0]) == 30
    assert peers.measure_tau_by_forward_hook(pair, peers.generate_by_lookup, [[1, 2, 3] * 6], 30, 0.0) > 1.5


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5"])
def test_the_cache_tells_where_a_class_does_not(name, loaded, monkeypatch):
    pair = loaded(name, drafted=False)
    monkeypatch.setattr(type(pair.target.model), "_is_stateful", False)
    assert [*peers.list_generate_functions(pair)] == [peers.PLAIN] and peers.list_generate_functions_and_omissions(
        pair
    ).notes


def test_a_class_that_calls_itself_stateful_is_left_out_also_without_a_state(place):
    """A Granite of attention alone keeps none, and transformers refuses it all the same."""
    kind, sizes = STATES["granite"][1:]
    torch.manual_seed(0)
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = kind.config_class(
        **{"vocab_size": 257, "hidden_size": 32, **ends, **sizes, "layer_types": ["full_attention"] * 3}
    )
    kind(config).save_pretrained(place / "attending")
    byte_tokenizer().save_pretrained(place / "attending")
    pair = loading.load_pair_anew(pair_of(place / "attending"), device="cpu")
    assert not pair.target.recurrent and [*peers.list_generate_functions(pair)] == [peers.PLAIN]
    with pytest.raises(ValueError, match="not supported with stateful models"):
        peers.generate_by_lookup(pair, PROMPT, 4, 0.0)


def test_broken_targets_race_and_their_distance_is_refused(loaded):
    pair = loaded("mamba2")
    for broken in ("tree!mask", "tree!trim"):
        race = raced(pair, "vanilla", broken, tokens=8)
        assert len(race.lanes[1].trace.tokens) == 8
        with pytest.raises(ValueError, match=rf"How far {broken} is off is measured by going back"):
            next(measure_broken_system_distance(pair, Settings("Once", ("tree", broken))))
