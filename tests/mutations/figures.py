"""Mistakes planted in clocks, races, policies that reckon with costs, remote lanes and verdicts. See `mutations.table`."""

from tests.mutations.mutation import of

LEARN = """
self.drafter.observe_target_logits(tree, logits, verdict.path)
self.drafter.commit(tree, verdict.path, verdict.bonus, features)
self.policy.learn_from_accepted_path(tree, verdict.path)
silence, unused = self.explain_no_guess(tree), self.policy.explain_unused_nodes(tree, self.room, self.drafter.stop_ids)
"""
LAP = """
watch.wait_for_device_and_end_phase("commit")
"""

FIGURES = [
    *of(
        "rounds/",
        (
            "commit ends before drafters learn",
            "round.py::HostRoundRunner.accept_and_commit",
            LEARN + LAP,
            LAP + LEARN,
            "core/test_clock.py::test_what_a_part_spends_is_on_its_lanes_clock_all_of_it_and_once -k 'specblock-adapt or auto/token'",
            "figures",
        ),
        (
            "the policy learns for nothing",
            "round.py::HostRoundRunner.accept_and_commit",
            LEARN[LEARN.index("self.policy") :] + LAP,
            LAP + LEARN[LEARN.index("self.policy") :],
            "core/test_clock.py::test_what_a_part_spends_is_on_its_lanes_clock_all_of_it_and_once -k 'specblock-adapt or auto/token'",
            "figures",
        ),
        (
            "the draft reads the prompt for nothing",
            "round.py::HostRoundRunner.prefill_and_return_seconds",
            """
self.drafter.begin(prompt, self.target.prefill_and_return_features(prompt[:-1]))
return adopt_first_process_value(self.target.session.runner.model, self.watch.wait_for_device_and_end_phase("prefill"))
""",
            """
read = self.target.prefill_and_return_features(prompt[:-1])
seconds = self.watch.wait_for_device_and_end_phase("prefill")
self.drafter.begin(prompt, read)
return adopt_first_process_value(self.target.session.runner.model, seconds)
""",
            "core/test_clock.py::test_what_a_part_spends_is_on_its_lanes_clock_all_of_it_and_once -k 'specblock-adapt or auto/token'",
            "figures",
        ),
    ),
    *of(
        "",
        (
            "every sequence pays for the whole forward",
            "batch.py::run_round_of_every_sequence",
            "watch.wait_for_device_and_end_phase('verify') / len(running_rounds)",
            "watch.wait_for_device_and_end_phase('verify')",
            "core/test_clock.py::test_a_batchs_clock_is_what_its_parts_and_its_forwards_spend -k tree",
            "figures",
        ),
        (
            "drafting in a batch is free",
            "batch.py::run_round_of_every_sequence",
            "{**seconds, 'verify': share, **outcome.seconds}",
            "{'verify': share, **outcome.seconds}",
            "core/test_clock.py::test_a_batchs_clock_is_what_its_parts_and_its_forwards_spend -k tree",
            "figures",
        ),
        (
            "p of a node's own row",
            "race.py::Lane.build_step_from_round",
            "torch.tensor(tree.parents[1:], dtype=torch.long)",
            "torch.arange(1, len(tree))",
            "core/test_race.py::test_the_targets_own_probabilities_are_those_of_transformers",
            "figures",
        ),
        (
            "the bonus's p of the root's row",
            "race.py::Lane.build_step_from_round",
            "(last[0], round.verdict.bonus)",
            "(0, round.verdict.bonus)",
            "core/test_race.py::test_the_targets_own_probabilities_are_those_of_transformers",
            "figures",
        ),
        (
            "a step's forwards are the lane's",
            "race.py::Lane.build_step_from_round",
            "self.rounds.draft_forward_count - self.trace.draft_forwards",
            "self.rounds.draft_forward_count",
            "core/test_race.py::test_draft_forwards_are_those_of_the_step",
            "figures",
        ),
        (
            "waits are not seen",
            "forward/runner.py::Runner.seconds_without_processor",
            "time.thread_time",
            "time.perf_counter",
            "lab/test_repeated.py::test_a_run_waits_for_the_processor_where_its_thread_has_none",
            "figures",
        ),
        (
            "waits of a forward's other threads are not seen",
            "forward/runner.py::Runner.seconds_without_processor",
            "time.perf_counter() - time.thread_time() + ThreadTeam.without",
            "time.perf_counter() - time.thread_time()",
            "lab/test_repeated.py::test_a_run_waits_for_the_processor_where_its_thread_has_none",
            "figures",
        ),
        (
            "helpers' waits are those of one helper",
            "kernels/sharing.py::ThreadTeam.wake_helpers_and_measure_lost_time",
            "(self.helpers_processor_seconds() - had) / len(self.clocks)",
            "self.helpers_processor_seconds() - had",
            "kernels/test_sharing.py::test_a_call_tells_for_how_long_its_helpers_had_no_processor",
            "figures",
        ),
    ),
    *of(
        "policies/",
        (
            "the next draw is worth as much as the last",
            "dyspec_threshold.py::DySpecLevelThreshold.add_level_below",
            "value + tree.score[child]",
            "value",
            "policies/test_policies.py::test_every_draw_of_the_threshold_form_is_worth_its_place",
            "speed",
        ),
        (
            "caution inverted",
            "auto.py::CostAdaptiveTree.grow",
            "CAUTION * max(self.pace.tokens_per_ms, self.plain)",
            "max(self.pace.tokens_per_ms, self.plain) / CAUTION",
            "policies/test_auto.py::test_caution_asks_more_of_a_guess_than_it_costs",
            "speed",
        ),
    ),
    *of(
        "remote/",
        (
            "tokens counted twice",
            "lane.py::RemoteLane.take_next_arrived_piece_as_step",
            "tokens[self.counted:]",
            "tokens",
            "remote/test_remote_clock.py::test_every_token_is_counted_once",
            "figures",
        ),
        (
            "a refusal is on the clock",
            "server.py::AnswerStream.stream_endpoint_answer_if_it_exists",
            "self.begun = time.perf_counter()",
            "pass",
            "remote/test_remote_clock.py::test_the_clock_begins_anew_when_a_server_has_no_completions",
            "figures",
        ),
    ),
    *of(
        "measure/",
        (
            "a round is a sequence's",
            "curves/batches.py::decode_batch_in_steps",
            "number <= last",
            "True",
            "lab/test_pays_curves.py::test_a_batchs_rounds_are_of_all_sequences_and_waits_are_outside_the_clock",
            "figures",
        ),
        (
            "a busy machine runs on",
            "repeated.py::RepeatedRace.has_time_for_another_run",
            "self.race.did_threads_wait_too_long or self.race.remote or not seconds[0] or len(finished_races) == MOST",
            "self.race.remote or not seconds[0] or len(finished_races) == MOST",
            "lab/test_repeated.py::test_a_busy_machine_gets_one_run_and_a_sentence",
            "figures",
        ),
        (
            "others wait for further runs",
            "repeated.py::RepeatedRace.repeat_and_show_median_run_in_steps",
            "not self.is_device_uncontested()",
            "False",
            "lab/test_repeated.py::test_further_runs_end_when_somebody_else_comes_and_what_is_not_over_is_not_counted",
            "figures",
        ),
        (
            "an arithmetic mean",
            "verdict.py::geometric_mean",
            "math.exp(math.fsum(map(math.log, values)) / len(values))",
            "math.fsum(values) / len(values)",
            "lab/test_pays.py::test_a_speedup_is_a_geometric_mean_and_generate_is_compared_alike",
            "figures",
        ),
        (
            "a 90 % interval",
            "verdict.py::percentile_ends",
            "(1 - CONFIDENCE) / 2",
            "1 - CONFIDENCE",
            "lab/test_pays.py::test_the_intervals_exact_ends_are_quantiles_of_the_resampled_means",
            "figures",
        ),
        (
            "level is a gain",
            "verdict.py::compare_with_plain_and_generate",
            "speedup > 1",
            "speedup >= 1",
            "lab/test_pays.py::test_the_verdict_follows_the_mean_and_its_interval",
            "figures",
        ),
        (
            "yes before the interval says so",
            "verdict.py::judge_yes_no_or_only",
            "YES if low > 1 else ONLY",
            "YES if low > 0.9 else ONLY",
            "lab/test_pays.py::test_the_verdict_follows_the_mean_and_its_interval",
            "figures",
        ),
        (
            "a group's tau is of all its prompts' lengths",
            "report.py::compute_figures_by_group",
            "pooled_tau(lanes)",
            "pooled_tau(traces)",
            "lab/test_pays.py::test_groups_are_counted_apart_and_a_prompt_without_one_in_none",
            "figures",
        ),
        (
            "a disturbed race is believed",
            "racing.py::race_again_if_disturbed_in_steps",
            "race.result()['disturbed']",
            "False",
            "lab/test_pays.py::test_a_race_that_was_disturbed_is_run_once_more_and_that_one_counts",
            "figures",
        ),
    ),
    *of(
        "page/screens/",
        (
            "whether guessing pays is asked without its constraint",
            "pays.py::build_validated_pays_settings",
            "Settings('a prompt', **settings)",
            "Settings('a prompt', **settings | {'constraint': ''})",
            "page/screens/test_pays_on_page.py::test_a_constraint_binds_every_text_that_is_raced",
            "figures",
        ),
    ),
]
