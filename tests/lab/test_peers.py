"""Peers: what is measured beside the lanes writes the same text and sees every token that they see."""

from dataclasses import replace

import pytest
import torch

from engine.lab.bench import command as bench
from engine.measure import peers
from engine.measure.other_engines import GUESSES, PeerGenerateFunctions
from engine.race import Race, Settings
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"


def baseline(pair, tokens: int) -> tuple[list[int], list[int]]:
    """The prompt's tokens and the baseline lane's text behind them."""
    race = Race(pair, Settings(TEXT, ("vanilla",), max_new_tokens=tokens))
    for _ in race.run():
        pass
    return race.lanes[0].trace.prompt_tokens, race.lanes[0].trace.tokens


@pytest.mark.parametrize("same", [False, True])
def test_every_peer_writes_the_baselines_greedy_text(same):
    pair = tiny_pair(same=same)
    prompt, expected = baseline(pair, 20)
    ways = peers.list_generate_functions(pair)
    assert len(ways) == 4 + len(GUESSES)
    for name, way in ways.items():
        assert way(pair, prompt, 20, 0.0) == expected, name


def test_peers_stop_where_the_lanes_stop():
    prompt, text = baseline(tiny_pair(), 40)
    pair = tiny_pair(stop_ids=frozenset({text[12], 3}))
    expected = baseline(pair, 40)[1]
    assert len(expected) < 40
    for name, way in peers.list_generate_functions(pair).items():
        assert way(pair, prompt, 40, 0.0) == expected, name
    window = replace(pair, stop_ids=frozenset(), context=len(prompt) + 9)
    for name, way in peers.list_generate_functions(window).items():
        assert len(way(window, prompt, 40, 0.0)) == 9, name


def test_sampled_peers_see_every_token(monkeypatch):
    pair, seen = tiny_pair(), []
    monkeypatch.setattr(
        pair.target.model, "_get_logits_processor", spied(pair.target.model._get_logits_processor, seen)
    )
    for name, way in peers.list_generate_functions(pair).items():
        assert len(way(pair, [1, 2, 3], 12, 0.8)) == 12, name
    assert seen and all("TopKLogitsWarper" not in names and "TemperatureLogitsWarper" in names for names in seen)


def spied(method, seen: list[list[str]]):
    def wrapper(*arguments, **named):
        processors = method(*arguments, **named)
        seen.append([type(each).__name__ for each in processors])
        return processors

    return wrapper


def test_a_setting_reaches_the_assistant_and_its_own_config_comes_back(monkeypatch):
    pair, drafted = tiny_pair(same=False), []
    draft = pair.draft.model
    draft.generation_config.num_assistant_tokens_schedule = "heuristic"  # generate() would write its count back
    own, before = draft.generation_config, draft.generation_config.to_dict()
    generate = draft.generate
    monkeypatch.setattr(draft, "generate", lambda **how: drafted.append(how["max_new_tokens"]) or generate(**how))
    for way in peers.list_generate_functions(pair).values():
        way(pair, [1, 2, 3], 12, 0.0)
        assert draft.generation_config is own and own.to_dict() == before
    drafted.clear()
    peers.generate_assisted(pair, [1, 2, 3], 12, 0.0, guesses=3)
    assert max(drafted) == 3
    with pytest.raises(ZeroDivisionError), peers.override_generation_config(draft, num_assistant_tokens=7):
        assert draft.generation_config.num_assistant_tokens == 7
        raise ZeroDivisionError
    assert draft.generation_config is own and own.to_dict() == before


def test_tau_of_a_peer_counts_its_target_forwards():
    pair, prompts = tiny_pair(), [[1, 2, 3], [4, 5, 6]]
    assert peers.measure_tau_by_forward_hook(pair, peers.generate_with_transformers, prompts, 10, 0.0) == 1
    assert (
        peers.measure_tau_by_forward_hook(
            pair, lambda *_: pair.target.model(torch.tensor([[1, 2]])) and [1, 2, 3], prompts, 10, 0.0
        )
        == 3
    )
    assert not pair.target.model._forward_hooks
    assert peers.measure_tau_by_forward_hook(tiny_pair(same=True), peers.generate_assisted, prompts, 10, 0.0) is None


def test_a_pair_without_a_fitting_draft_has_fewer_peers():
    pair = tiny_pair()
    assert list(peers.list_generate_functions(replace(pair, draft=None))) == [peers.PLAIN, peers.MTP, peers.LOOKUP]
    assert (
        peers.list_generate_functions_and_omissions(replace(pair, draft=None)).notes
        == peers.list_generate_functions_and_omissions(pair).notes
        == []
    )
    pair.draft.vocab += 1
    assert list(peers.list_generate_functions(pair)) == [peers.PLAIN, peers.MTP, peers.LOOKUP]
    [said] = peers.list_generate_functions_and_omissions(pair).notes
    assert said.startswith(
        "generate() assisted is left out: with 257 logits of the draft and 256 of the target transformers"
    )


def test_the_name_of_the_layers_tells_patched_ones():
    model = tiny_pair().target.model
    assert peers.most_common_linear_class_name(model) == "Linear"
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.forward = module.forward
    assert peers.most_common_linear_class_name(model) == "patched Linear"


def test_ways_take_turns_on_every_prompt(monkeypatch):
    """Every way runs once on every prompt, beside that prompt's race, and none is always first."""
    pair, calls = tiny_pair(), []

    def recorded(name, way):
        return lambda pair, prompt, *rest: calls.append((name, tuple(prompt))) or way(pair, prompt, *rest)

    ways = {name: recorded(name, way) for name, way in peers.list_generate_functions(pair).items()}
    race = Race.run
    monkeypatch.setattr(peers, "list_generate_functions_and_omissions", lambda pair: PeerGenerateFunctions(ways))
    monkeypatch.setattr(peers, "measure_tau_and_build_peer_rows", lambda *_: {})
    monkeypatch.setattr(
        Race, "run", lambda self: calls.append(("race", tuple(self.lanes[0].trace.prompt_tokens))) or race(self)
    )
    texts = ["Story: One", "Story: Two"]
    bench.race_prompts_and_compute_figures(
        pair, texts, Settings("a prompt", ("tree",), max_new_tokens=4), PeerGenerateFunctions()
    )
    measured = calls[len(ways) :]  # first calls
    blocks = [measured[: len(ways) + 1], measured[len(ways) + 1 :]]
    for text, block in zip(texts, blocks, strict=True):
        ids = tuple(pair.tokenizer(text)["input_ids"])
        assert {name for name, _ in block} == {"race", *ways} and {prompt for _, prompt in block} == {ids}
    assert blocks[0][0] != blocks[1][0] and blocks[0][-1] == ("race", blocks[0][0][1])  # none is always first
