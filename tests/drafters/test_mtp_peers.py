"""MTP layers beside `generate(use_mtp=True)`, which computes the same layers of the same checkpoint."""

from dataclasses import replace

from engine.lab.bench import command as bench
from engine.measure import peers, racing, report, words
from engine.measure.other_engines import PeerGenerateFunctions
from engine.models.loading import load_pair_anew
from engine.models.pairs import build_pair
from engine.race import Settings
from helpers.published.mtp import TARGETS, let_agree, write

TEXT = [5, 80, 33, 12, 200, 41, 7]


def test_generate_with_the_same_layers_is_a_peer(tmp_path):
    """It is lent the layers that are loaded: transformers would not find those of so small a model by their numbers."""
    write(tmp_path, *TARGETS["GLM-4 MoE, two"])
    pair = replace(load_pair_anew(build_pair(str(tmp_path))), stop_ids=frozenset())
    assert peers.MTP in peers.list_generate_functions(pair) and peers.MTP not in peers.list_generate_functions(
        replace(pair, learned={})
    )
    plain = peers.generate_with_transformers(pair, TEXT, 24, 0.0)
    assert peers.generate_by_mtp_or_gemma_assistant(pair, TEXT, 24, 0.0) == plain
    assert (
        len(peers.generate_by_mtp_or_gemma_assistant(pair, TEXT, 24, 0.8)) == 24
        and 1 <= peers.measure_tau_by_forward_hook(pair, peers.generate_by_mtp_or_gemma_assistant, [TEXT], 24, 0.8) <= 3
    )
    figures = bench.race_prompts_and_compute_figures(
        pair, ["Once upon"], Settings("Once upon", ("vanilla", "mtp"), max_new_tokens=12), PeerGenerateFunctions()
    )
    same = {row["name"].removesuffix(" on PackedLinear"): row["identical"] for row in figures["peers"]}
    assert same == dict.fromkeys(("vanilla", "mtp", "generate()", "generate() MTP", "generate() lookup"), True)


def test_where_guesses_hold_three_levels_give_more_than_the_one_guess_of_generate(tmp_path):
    write(tmp_path, "GLM-4 MoE", 1)
    let_agree(tmp_path, doubt=0.01)
    pair = load_pair_anew(build_pair(str(tmp_path)))
    settings = Settings("Once upon", ("vanilla", "mtp"), max_new_tokens=24)
    figures = bench.race_prompts_and_compute_figures(pair, ["Once upon"], settings, PeerGenerateFunctions())
    found = {row["name"].removesuffix(" on PackedLinear"): row for row in figures["peers"]}
    assert found["mtp"]["tau"] > 3 and 1.5 < found["generate() MTP"]["tau"] <= 2
    assert all(row["identical"] for row in found.values())


def test_pays_tells_what_generate_gains_by_the_same_layers(tmp_path):
    write(tmp_path, "GLM-4 MoE", 1)
    pair, prompts = load_pair_anew(build_pair(str(tmp_path))), ["Once", "A cat", "Tom"]
    wish = Settings("a prompt", max_new_tokens=8)
    outcome = racing.run_to_result(racing.choose_settings_and_race_in_steps(pair, prompts, ["mtp:2x1x3"], wish), int)
    by_mtp = outcome.peer_texts_by_name[peers.MTP]
    assert len(by_mtp) == len(outcome.peer_texts_by_name[peers.PLAIN]) == 3
    figures = report.build_pays_report(pair, prompts, [0, 1, 2], {}, wish, outcome)
    assert [len(each.tokens) for each in by_mtp] == [
        len(each.tokens) for each in outcome.peer_texts_by_name[peers.PLAIN]
    ]
    [peer] = figures["peers"]
    assert peer["interval"][0] <= peer["speedup"] <= peer["interval"][1]
    assert sum(line.startswith("generate() MTP") for line in words.format_pays_report(figures).splitlines()) == 1
