"""Peers and growth: what is measured beside the lanes writes the same text, leaves nothing behind and is put into figures rightly."""

import gc
import json
from dataclasses import replace

import pytest
import torch

from engine.measure import bench, growth, peers
from engine.measure.footprint import peak_mib
from engine.race import Race, Settings
from engine.record.trace import Step, Trace
from helpers.pairs import tiny_pair

TEXT = "Story: Once upon a time"
MIB = 2**20


def baseline(pair, tokens: int) -> tuple[list[int], list[int]]:
    """The prompt's tokens and the baseline lane's text behind them."""
    race = Race(pair, Settings(TEXT, ("vanilla",), max_new_tokens=tokens))
    for _ in race.run():
        pass
    return race.lanes[0].trace.prompt_tokens, race.lanes[0].trace.tokens


@pytest.mark.parametrize("same", [False, True])
def test_every_peer_writes_the_baselines_greedy_text(same):
    pair = tiny_pair(same=same)
    prompt, expected = baseline(pair, 40)
    ways = peers.ways(pair)
    assert len(ways) == 3 + len(peers.ASSISTANT_TOKENS)
    for name, way in ways.items():
        assert way(pair, prompt, 40, 0.0) == expected, name


def test_peers_stop_where_the_lanes_stop():
    prompt, text = baseline(tiny_pair(), 40)
    pair = tiny_pair(stop_ids=frozenset({text[12], 3}))
    expected = baseline(pair, 40)[1]
    assert len(expected) < 40
    for name, way in peers.ways(pair).items():
        assert way(pair, prompt, 40, 0.0) == expected, name
    window = replace(pair, stop_ids=frozenset(), context=len(prompt) + 9)
    for name, way in peers.ways(window).items():
        assert len(way(window, prompt, 40, 0.0)) == 9, name


def test_sampled_peers_see_every_token(monkeypatch):
    pair, seen = tiny_pair(), []
    monkeypatch.setattr(
        pair.target.model, "_get_logits_processor", spied(pair.target.model._get_logits_processor, seen)
    )
    for name, way in peers.ways(pair).items():
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
    for way in peers.ways(pair).values():
        way(pair, [1, 2, 3], 12, 0.0)
        assert draft.generation_config is own and own.to_dict() == before
    drafted.clear()
    peers.assisted(pair, [1, 2, 3], 12, 0.0, draft_tokens=3)
    assert max(drafted) == 3
    with pytest.raises(ZeroDivisionError), peers.generation_settings(draft, num_assistant_tokens=7):
        assert draft.generation_config.num_assistant_tokens == 7
        raise ZeroDivisionError
    assert draft.generation_config is own and own.to_dict() == before


def test_tau_of_a_peer_counts_its_target_forwards():
    pair, prompts = tiny_pair(), [[1, 2, 3], [4, 5, 6]]
    assert peers.tau(pair, peers.plain, prompts, 10, 0.0) == 1
    assert peers.tau(pair, lambda *_: pair.target.model(torch.tensor([[1, 2]])) and [1, 2, 3], prompts, 10, 0.0) == 3
    assert not pair.target.model._forward_hooks
    assert peers.tau(tiny_pair(same=True), peers.assisted, prompts, 10, 0.0) is None


def test_a_pair_without_a_fitting_draft_has_fewer_peers():
    pair = tiny_pair()
    assert list(peers.ways(replace(pair, draft=None))) == [peers.PLAIN, peers.LOOKUP]
    pair.draft.vocab += 1
    assert list(peers.ways(pair)) == [peers.PLAIN, peers.LOOKUP]


def test_the_name_of_the_layers_tells_patched_ones():
    model = tiny_pair().target.model
    assert peers.linear_layers(model) == "Linear"
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.forward = module.forward
    assert peers.linear_layers(model) == "patched Linear"


def test_ways_take_turns_on_every_prompt(monkeypatch):
    """Every way runs once on every prompt, right behind that prompt's race, and none is always first."""
    pair, calls = tiny_pair(), []

    def recorded(name, way):
        return lambda pair, prompt, *rest: calls.append((name, tuple(prompt))) or way(pair, prompt, *rest)

    ways = {name: recorded(name, way) for name, way in peers.ways(pair).items()}
    race = Race.run
    monkeypatch.setattr(peers, "ways", lambda pair: ways)
    monkeypatch.setattr(peers, "compare", lambda *_: {})
    monkeypatch.setattr(
        Race, "run", lambda self: calls.append(("race", tuple(self.lanes[0].trace.prompt_tokens))) or race(self)
    )
    texts = ["Story: One", "Story: Two"]
    bench.run(pair, texts, ["tree"], 4, 0.0, 0, {}, with_peers=True)
    measured = calls[len(ways) :]  # first calls
    blocks = [measured[: len(ways) + 1], measured[len(ways) + 1 :]]
    for text, block in zip(texts, blocks, strict=True):
        ids = tuple(pair.tokenizer(text)["input_ids"])
        assert block[0] == ("race", ids)
        assert {name for name, _ in block[1:]} == set(ways) and {prompt for _, prompt in block} == {ids}
    assert blocks[0][1] != blocks[1][1]


def test_the_bench_puts_lanes_and_peers_in_one_table():
    pair = tiny_pair()
    figures = json.loads(
        json.dumps(bench.run(pair, [TEXT, "Story: A cat"], ["vanilla", "tree"], 6, 0.0, 0, {}, with_peers=True))
    )
    rows = {row["name"]: row for row in figures["peers"]}
    best = f"{peers.ASSISTED}, best of {len(peers.ASSISTANT_TOKENS)}"
    assert list(rows) == ["vanilla", "tree", peers.PLAIN, peers.ASSISTED, best, peers.LOOKUP]
    assert rows["vanilla"]["vs_baseline"] == 1 == rows[peers.PLAIN]["vs_generate"] == rows[peers.PLAIN]["tau"]
    assert rows["tree"]["vs_baseline"] == figures["systems"][1]["speedup"]
    assert rows["tree"]["tau"] == figures["systems"][1]["tau"]
    assert rows[best]["vs_baseline"] == max(figures["assisted_settings"].values())
    assert rows["vanilla"]["vs_generate"] == figures["baseline"]["vs_generate"]
    assert all(row["identical"] is True and row["peak_mib"] > 0 and row["tokens_per_s"] > 0 for row in rows.values())
    text = peers.table(figures)
    assert all(name in text for name in rows)
    settings = figures["assisted_settings"]
    assert f"Best setting: {max(settings, key=settings.get)} assistant tokens" in text
    sampled = bench.run(pair, [TEXT], ["tree"], 3, 0.7, 0, {}, with_peers=True)
    assert [row["identical"] for row in sampled["peers"]] == [True, True, None, None, None, None]


def trace(system: str, rounds: list[tuple[int, dict[str, float]]]) -> Trace:
    """A trace of rounds, each a burst's length and seconds by phase."""
    made = Trace(system, "pair", "machine", "fp32", "text", [1], 0.0, 0, 1, 1, 2, 99)
    for index, (burst, seconds) in enumerate(rounds):
        made.steps.append(
            Step(
                index=index, position=0, tokens=[1], parents=[-1], texts=["a"], score=[1.0], q=[1.0], p=[1.0], verdicts=["root"],
                path=[], bonus=1, bonus_text="a", bonus_p=1.0, burst=[1] * burst, pieces=["a"] * burst, end="", seconds=seconds,
                draft_forwards=0,
            )
        )  # fmt: skip
    return made


def test_the_limit_by_hand():
    """Baseline: 10 s a verification, 11 s a round. System: tau 3, verifications of 12 s on average, drafts of 8, rounds of 22."""
    base = trace(
        "vanilla",
        [
            (1, {"prefill": 100.0, "verify": 9.0, "accept": 0.5, "commit": 0.5}),
            (1, {"verify": 11.0, "accept": 0.5, "commit": 0.5}),
        ],
    )
    mine = trace(
        "tree",
        [
            (4, {"prefill": 300.0, "draft": 6.0, "verify": 11.0, "accept": 1.0, "commit": 1.0}),
            (2, {"draft": 10.0, "verify": 13.0, "accept": 1.0, "commit": 1.0}),
        ],
    )
    assert bench.decode_seconds_per_token(base) == pytest.approx(11)
    assert bench.decode_seconds_per_token(mine) == pytest.approx(44 / 6)
    assert bench.seconds_per_token(mine) == pytest.approx(344 / 6)
    assert bench.limit(base, mine) == pytest.approx(3 / (12 / 10 + 8 / 10))
    assert bench.of_limit(base, mine) == pytest.approx((11 / (44 / 6)) / 1.5)
    assert bench.of_limit(base, mine) == pytest.approx(1.0)  # both lose a tenth outside their forwards
    slower = trace("tree", [(3, {"draft": 8.0, "verify": 12.0, "accept": 20.0})])
    assert bench.of_limit(base, slower) == pytest.approx(0.55)


def test_peak_memory_is_what_lives_at_once():
    def task():
        first = torch.ones(MIB)  # 4 MiB
        second = first + 1  # 4 more
        del first
        torch.ones(MIB // 4)
        del second
        torch.ones(3 * MIB // 4)

    kept = torch.ones(8 * MIB)
    assert peak_mib(torch.device("cpu"), task) == pytest.approx(9 - 1, abs=0.01)
    assert kept.sum() == 8 * MIB


def printed(capsys, monkeypatch, pair, *arguments: str) -> list[str]:
    monkeypatch.setattr(growth, "load", lambda *_, **__: pair)
    growth.main(list(arguments))
    return capsys.readouterr().out.splitlines()


def test_growth_measures_every_part(capsys, monkeypatch):
    monkeypatch.setattr(growth, "SIZES", {"small": (64, 1, 1, 64), "large": (128, 2, 2, 128)})
    monkeypatch.setattr(growth, "LENGTHS", (8, 16, 900))
    pair = replace(tiny_pair(), stop_ids=frozenset(range(0, 256, 2)))  # ignored, or hardly any length would be reached
    lines = printed(
        capsys, monkeypatch, pair, "--prompts", "1", "--repeats", "1", "--races", "30", "--systems", "tree,eagle"
    )
    figures = json.loads(lines[-1])
    parts = figures["parts"]
    assert list(parts) == list(growth.PARTS) and figures["interrupted"] is False
    assert [line for line in lines if line in growth.PARTS] == list(growth.PARTS)
    names = ["vanilla", "tree", "eagle"]
    assert [(row["tokens"], row["system"]) for row in parts["tokens"]] == [(n, s) for n in (8, 16) for s in names]
    assert all(row["vs_baseline"] == 1 for row in parts["tokens"] if row["system"] == "vanilla")
    assert [row["nodes"] for row in parts["tree"]] == list(growth.NODES) and parts["tree"][0]["vs_one"] == 1
    assert [(row["context"], row["system"]) for row in parts["context"]] == [(n, s) for n in (64, 128) for s in names]
    assert all(row["tau"] == 1 for row in parts["context"] if row["system"] == "vanilla")
    assert all(row["round_growth"] == row["token_growth"] == 1 for row in parts["context"] if row["context"] == 64)
    assert [row["model"] for row in parts["size"]] == ["small", "large"]
    assert parts["size"][0]["parameters"] < parts["size"][1]["parameters"] and set(parts["size"][0]["ms"]) == {
        "1",
        "8",
        "16",
    }
    [memory] = parts["memory"]
    assert memory["races"] == len(memory["mib"]) == 30 and memory["growth"] == memory["last_ten"] - memory["second_ten"]


def test_growth_keeps_what_is_done_when_interrupted(capsys, monkeypatch):
    def interrupt(run):
        raise KeyboardInterrupt

    monkeypatch.setitem(growth.PARTS, "size", interrupt)
    with pytest.raises(SystemExit) as ended:
        printed(capsys, monkeypatch, tiny_pair(), "--parts", "size", "tree", "--repeats", "1")
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ended.value.code == 130 and figures["interrupted"] is True and list(figures["parts"]) == ["tree"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--parts", "memory", "--races", "5"), "--races must be at least 30, got 5"),
        (("--prompts", "0"), "--prompts must be between 1 and 20, got 0"),
        (("--repeats", "0"), "--repeats must be at least 1, got 0"),
        (("--parts", "tree", "--systems", "perpetual"), "Unknown system 'perpetual'"),
    ],
)
def test_growth_refuses_in_a_sentence(capsys, monkeypatch, arguments, sentence):
    with pytest.raises(SystemExit):
        printed(capsys, monkeypatch, tiny_pair(), *arguments)
    assert sentence in capsys.readouterr().err


def test_a_forced_race_writes_exactly_the_length_asked_for():
    run = growth.Run(tiny_pair(stop_ids=frozenset(range(256))), [TEXT], ["tree"], 1, 30)
    lanes = run.race(run.long_prompt(0, 64), 20)
    assert [len(lane.trace.tokens) for lane in lanes] == [20, 20]
    assert lanes[0].trace.tokens == lanes[1].trace.tokens and len(lanes[0].trace.prompt_tokens) == 64
    with pytest.raises(ValueError, match="150 tokens of prompt and 20 new ones do not fit the context window of 160"):
        run.race(run.long_prompt(0, 150), 20)


def test_races_leave_no_tensors_behind():
    run, alive = growth.Run(tiny_pair(), [TEXT, "Story: A cat"], ["tree", "eagle"], 1, 30), []
    for _ in range(3):
        for index in range(10):
            settings = Settings(run.prompts[index % 2], run.lanes, temperature=0.8, max_new_tokens=4, seed=index)
            for _ in Race(run.pair, settings).run():
                pass
        gc.collect()
        tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        alive.append((len(tensors), sum(tensor.numel() * tensor.element_size() for tensor in tensors)))
    assert alive[2][0] <= alive[1][0] + 5
    assert alive[2][1] <= alive[1][1] + 2**16
