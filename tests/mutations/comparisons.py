"""Mistakes in what lanes, runs and texts are compared by: clocks, medians, shares, orders. See `mutations.table`."""

from tests.mutations.mutation import of

SUMS = "record/test_figures.py::test_figures_of_several_texts_weigh_every_second_and_every_token"
GATE = "lab/test_pays_steps.py::test_its_clock_adds_up_the_steps_and_leaves_out_what_others_do_between_them"

COMPARISONS = [
    *of(
        "",
        (
            "noise is shared between lanes",
            "race.py::Race.__init__",
            "Lane(pair, find(name), settings, replace(sampling), prompt)",
            "Lane(pair, find(name), settings, sampling, prompt)",
            "core/test_race.py::test_every_lane_makes_its_noise_for_itself",
            "figures",
        ),
        (
            "a race is as busy as its first lane",
            "race.py::Race.busy",
            "lanes = self.local.values()",
            "lanes = [*self.local.values()][:1]",
            "core/test_race.py::test_a_race_is_busy_whichever_lane_waited",
            "figures",
        ),
        (
            "a lane's clock is its last step",
            "race.py::Lane.step",
            "self.clock += step.total_seconds",
            "self.clock = step.total_seconds",
            "core/test_race.py::test_the_lane_whose_clock_is_behind_steps_next",
            "figures",
        ),
        (
            "the lane that is ahead steps next",
            "race.py::Race.polled",
            "min(running, key=lambda i: (self.lanes[i].clock, i))",
            "max(running, key=lambda i: (self.lanes[i].clock, i))",
            "core/test_race.py::test_the_lane_whose_clock_is_behind_steps_next",
            "figures",
        ),
        (
            "the first prompt sizes all caches of a batch",
            "batch.py::decode_together",
            "max(map(len, prompts))",
            "len(prompts[0])",
            "rounds/test_batched_rounds.py::test_a_short_prompt_does_not_size_the_caches_of_longer_ones",
        ),
        (
            "a batch grows the paper's trees",
            "batch.py::decode_together",
            "system.build(pair, capacity, **system.shape(pair), costs=costs)",
            "system.build(pair, capacity, **system.own_shape, costs=costs)",
            "rounds/test_batched_rounds.py::test_a_sequence_grows_trees_of_the_shape_that_its_system_races_in",
            "speed",
        ),
    ),
    *of(
        "record/",
        (
            "a lossy system hides a broken promise",
            "race_file.py",
            "WORST = ('failed', False, 'lossy', 'other text', 'law', 'text')",
            "WORST = ('failed', 'lossy', False, 'other text', 'law', 'text')",
            "record/test_figures.py::test_of_two_verdicts_the_worse_is_told",
            "figures",
        ),
        (
            "a node may be its own parent",
            "race_file.py::check_step",
            "0 <= parent < node",
            "0 <= parent <= node",
            "record/test_race_file.py::test_a_wrong_value_is_named -k 'cannot and have and parent'",
            "others",
        ),
        (
            "every text's shares weigh alike",
            "trace_statistics.py::time_shares",
            "trace.share(phase) * trace.seconds",
            "trace.share(phase)",
            SUMS,
            "figures",
        ),
        (
            "tau is a mean of every text's",
            "trace_statistics.py::tau",
            "sum(len(trace.tokens) for trace in traces) / sum(trace.forwards for trace in traces)",
            "sum(trace.tau for trace in traces) / len(traces)",
            SUMS,
            "figures",
        ),
        (
            "seconds a token leave out the prompt",
            "trace_statistics.py::seconds_per_token",
            "trace.seconds",
            "trace.decode_seconds",
            SUMS,
            "figures",
        ),
        (
            "seconds behind the prompt hold the prompt",
            "trace_statistics.py::decode_seconds_per_token",
            "trace.decode_seconds",
            "trace.seconds",
            SUMS,
            "figures",
        ),
    ),
    *of(
        "measure/",
        (
            "generate() pays while others work",
            "stepped.py::Gate.enter",
            """
self.asked.acquire()
if not self.wanted:
    raise Unwanted
self.since = time.perf_counter()
""",
            """
self.since = time.perf_counter()
self.asked.acquire()
if not self.wanted:
    raise Unwanted
""",
            GATE,
            "figures",
        ),
        (
            "generate() takes as long as its last token",
            "stepped.py::Gate.leave",
            "self.seconds += time.perf_counter() - self.since",
            "self.seconds = time.perf_counter() - self.since",
            GATE,
            "figures",
        ),
        (
            "the last prompt chooses the setting",
            "racing.py::best_setting",
            "taken[lane.trace.system] += lane.trace.seconds_per_token / len(prompts)",
            "taken[lane.trace.system] = lane.trace.seconds_per_token / len(prompts)",
            "lab/test_pays_steps.py::test_the_best_setting_is_that_of_all_prompts_and_not_of_the_last",
            "figures",
        ),
        (
            "seconds a token of a setting are a sum",
            "racing.py::best_setting",
            "lane.trace.seconds_per_token / len(prompts)",
            "lane.trace.seconds_per_token",
            "lab/test_pays_steps.py::test_the_best_setting_is_that_of_all_prompts_and_not_of_the_last",
            "figures",
        ),
        (
            "others run in their worst setting",
            "racing.py::best_ways",
            "min(taken, key=taken.__getitem__)",
            "max(taken, key=taken.__getitem__)",
            "lab/test_pays_steps.py::test_of_the_settings_of_one_way_the_one_with_the_fewest_seconds_runs",
            "figures",
        ),
        (
            "generate() always goes first",
            "racing.py::raced_in",
            "work.insert(index % (len(work) + 1), [])",
            "work.insert(0, [])",
            "lab/test_pays_steps.py::test_generate_takes_every_place_between_a_prompts_races_in_turn",
            "figures",
        ),
        (
            "other trees enter the median",
            "repeated.py::Repeated.again",
            "if trees_of(race) == trees_of(self.race):\n    runs.append(race)",
            "runs.append(race)",
            "lab/test_repeated.py::test_a_run_whose_trees_were_others_is_in_no_median",
            "figures",
        ),
    ),
    *of(
        "measure/curves/",
        (
            "a batch reads its prompts for nothing",
            "batches.py::decode_in_steps",
            "steps[-1] += sum(done.seconds.values())",
            "steps[-1] += sum(each for phase, each in done.seconds.items() if phase != 'prefill')",
            "lab/test_pays_curves.py::test_a_batchs_seconds_hold_the_reading_of_its_prompts",
            "figures",
        ),
        (
            "the last round's wait is the whole",
            "batches.py::decode_in_steps",
            "waited += pair.target.without_processor() - before",
            "waited = pair.target.without_processor() - before",
            "lab/test_pays_curves.py::test_a_batchs_rounds_are_of_all_sequences_and_waits_are_outside_the_clock",
            "figures",
        ),
    ),
    *of(
        "lab/pays/",
        (
            "level is behind",
            "batch.py::of_setting",
            "each['speedup'] < 1",
            "each['speedup'] <= 1",
            "lab/test_pays_curves.py::test_without_a_size_that_loses_there_is_no_crossing",
            "figures",
        ),
    ),
    *of(
        "record/",
        (
            "tokens behind a stop are accepted",
            "served_trace.py::kept_of",
            "min(last, came)",
            "last",
            "record/test_served_trace.py::test_tau_counts_no_token_that_never_came",
            "figures",
        ),
    ),
    *of(
        "remote/",
        (
            "more tokens are accepted than came",
            "telling.py::guesses_of",
            "min(found.accepted, tokens - found.passes)",
            "found.accepted",
            "lab/pays/test_servers_counts.py::test_no_more_tokens_were_accepted_than_came",
            "figures",
        ),
    ),
    *of(
        "lab/pays/",
        (
            "a server that overruns is faster",
            "served.py::point",
            "plain, mine, miscounts = counted_alike(plain, mine)",
            "miscounts = ''",
            "lab/pays/test_servers_counts.py::test_a_server_that_overruns_is_not_faster_and_the_report_names_it",
            "figures",
        ),
    ),
    *of(
        "measure/",
        (
            "a peer's equal text has tokens of its own",
            "ways.py::counted_alike",
            "each.text is not None and each.text == trace.text",
            "False",
            "lab/pays/test_servers_counts.py::test_a_peers_text_that_is_plain_decodings_has_as_many_tokens",
            "figures",
        ),
    ),
    *of(
        "",
        (
            "weights that changed in place are not seen",
            "custom_generate.py::pair_of",
            "[checksums(each) for each in weights]",
            "[torch.tensor([each.data_ptr(), each._version]) for each in weights]",
            "core/test_custom_generate.py::test_weights_that_changed_in_place_are_noticed",
        ),
        (
            "sums may be reordered",
            "kernels/compiling.py",
            "FAST = {'nnan'}",
            "FAST = {'nnan', 'reassoc'}",
            "kernels/test_first_start.py::test_no_loop_may_be_compiled_so_that_a_copy_of_it_has_other_bits",
            "speed",
        ),
        (
            "a setting that nothing reads is off when it is false",
            "nets/formats/checked.py::refuse_unread",
            "config[name] is not None",
            "config[name]",
            "drafters/test_published_dflash.py::test_a_block_that_cannot_be_served_is_refused_before_weights_are_read",
            "speed",
        ),
        (
            "a failure comes before the news",
            "page/web/streams.py::order_stream",
            "asyncio.sleep(max(0.0, told + SHOWN - time.monotonic()))",
            "asyncio.sleep(0.0)",
            "page/web/test_sessions.py::test_a_failure_is_told_once_the_news_before_it_are_shown",
            "others",
        ),
    ),
]
