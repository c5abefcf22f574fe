"""Mistakes planted in what is published: clocks, speedups, intervals, tau, shares, costs, verdicts, counts, places in line."""

from tests.mutations.mutation import AUTO, POLICIES, REMOTE_CLOCK, of

CLOCK, RACE = "tests/core/test_clock.py", "tests/core/test_race.py"
PARTS = f"{CLOCK} -k 'all_of_it_and_once and (specblock-adapt or auto/token)'"
RUNS, REPEATED, FILES = (
    "tests/record/test_disturbance.py",
    "tests/lab/test_repeated.py",
    "tests/record/test_race_file.py",
)
PAYS, BENCH, COSTS = "tests/lab/test_pays.py", "tests/lab/bench/test_bench.py", "tests/record/test_costs.py"
STREAMED = f"{CLOCK} -k streamed_events"
BY_HAND = f"{PAYS} -k 'follows_the_mean or geometric or exact_ends'"
COMMIT = """        self.target.commit(verdict.path)
        if self.drafter.reads_logits:
            self.drafter.see(tree, logits, verdict.path)
        self.drafter.commit(tree, verdict.path, verdict.bonus, features)
        self.policy.learn(tree, verdict.path)
        watch.lap("commit")
"""
KEPT, *LEARNT, LAP = COMMIT.splitlines(keepends=True)
F = "figures"

FIGURES = [
    *of(
        "rounds/",
        ("commit ends before drafters learn", "round.py", COMMIT, "".join([KEPT, LAP, *LEARNT]), PARTS, F),
        ("the policy learns for nothing", "round.py", LEARNT[-1] + LAP, LAP + LEARNT[-1], PARTS, F),
        (
            "the draft reads the prompt for nothing",
            "round.py",
            """        self.drafter.begin(prompt, self.target.prefill(prompt[:-1]))
        return agreed(self.target.session.runner.model, self.watch.lap("prefill"))
""",
            """        read = self.target.prefill(prompt[:-1])
        seconds = self.watch.lap("prefill")
        self.drafter.begin(prompt, read)
        return agreed(self.target.session.runner.model, seconds)
""",
            PARTS,
            F,
        ),
        (
            "every sequence pays for the whole forward",
            "batch.py",
            'watch.lap("verify") / len(self.running)',
            'watch.lap("verify")',
            f"{CLOCK} -k 'batchs_clock and tree'",
            F,
        ),
        ("drafting in a batch is free", "batch.py", "{**seconds, ", "{", f"{CLOCK} -k 'batchs_clock and tree'", F),
    ),
    *of(
        "",
        (
            "p of a node's own row",
            "race.py",
            "torch.tensor(tree.parents[1:], dtype=torch.long), done",
            "torch.arange(1, len(tree)), done",
            f"{RACE} -k targets_own",
            F,
        ),
        (
            "the bonus's p of the root's row",
            "race.py",
            "logp[last[0], done",
            "logp[0, done",
            f"{RACE} -k targets_own",
            F,
        ),
        (
            "a step's forwards are the lane's",
            "race.py",
            "forwards - self.trace.draft_forwards",
            "forwards",
            f"{RACE} -k those_of_the_step",
            F,
        ),
        ("waits are not seen", "race.py", "- time.thread_time()\n", "- time.perf_counter()\n", REPEATED, F),
    ),
    *of(
        "policies/",
        (
            "the next draw is worth as much as the last",
            "dyspec_threshold.py",
            "(value + tree.score[child], node)",
            "(value, node)",
            f"{POLICIES} -k worth_its_place",
            "speed",
        ),
        (
            "caution inverted",
            "auto.py",
            "rate = CAUTION * max(self.pace.rate, self.plain)",
            "rate = max(self.pace.rate, self.plain) / CAUTION",
            f"{AUTO} -k caution",
            "speed",
        ),
    ),
    *of(
        "remote/",
        ("tokens counted twice", "lane.py", "tokens[self.counted :], max", "tokens, max", REMOTE_CLOCK, F),
        (
            "a refusal is on the clock",
            "server.py",
            "        self.begun = time.perf_counter()\n        async with",
            "        async with",
            REMOTE_CLOCK,
            F,
        ),
    ),
    *of(
        "record/",
        (
            "the left lane's tokens for all",
            "race_file.py",
            '"tokens": len(trace.tokens)',
            '"tokens": len(base.tokens)',
            f"{FILES} -k figures_by_lane",
            F,
        ),
        (
            "committing is nobody's share",
            "race_file.py",
            'trace.share("accept") + trace.share("commit")',
            'trace.share("accept")',
            STREAMED,
            F,
        ),
        (
            "drafting is called verification",
            "race_file.py",
            '"verify_share": trace.share("verify")',
            '"verify_share": trace.share("draft")',
            STREAMED,
            F,
        ),
        (
            "tau without the last round",
            "trace.py",
            "len(self.tokens) / len(self.steps) if",
            "len(self.tokens) / (len(self.steps) + 1) if",
            STREAMED,
            F,
        ),
        (
            "a share of the phase's own seconds",
            "trace.py",
            "/ self.seconds if self.steps",
            "/ 1.0 if self.steps",
            STREAMED,
            F,
        ),
        (
            "speed with prefill is speed without",
            "trace.py",
            'self.seconds * (1 - self.share("prefill"))',
            "self.seconds",
            f"{BENCH} -k by_hand",
            F,
        ),
        (
            "the worst sibling ranks first",
            "trace_statistics.py",
            "key=lambda node: -step.score[node]",
            "key=lambda node: step.score[node]",
            f"{PAYS} -k place_among_siblings",
            F,
        ),
        ("the best run is the headline", "headline.py", "statistics.median_low(lane)", "max(lane)", RUNS, F),
        ("the first run is the least", "headline.py", '"least": min(lane)', '"least": lane[0]', RUNS, F),
        ("slower is faster", "headline.py", "speed / speeds[0] if", "speeds[0] / speed if", RUNS, F),
        ("another run is shown", "headline.py", "return min(range(len(runs))", "return max(range(len(runs))", RUNS, F),
        ("a stall is believed", "disturbance.py", "each > max(high", "each > 99 * max(high", RUNS, F),
        (
            "more than tau allows is believed",
            "disturbance.py",
            "if ratio > LEEWAY * most",
            "if ratio > 9 * most",
            RUNS,
            F,
        ),
        (
            "a prompt that was read for too long is believed",
            "disturbance.py",
            "if prefill(trace) > TIMES * prefill(first)",
            "if prefill(trace) > 99 * prefill(first)",
            RUNS,
            F,
        ),
        ("runs of another race", "race_file.py", "require(any(of_one) or not of_one,", "require(True,", RUNS, F),
        ("a batch's stall is believed", "disturbance.py", "if each > TIMES * often", "if each > 99 * often", RUNS, F),
        ("break-even by the tree's own forward", "costs.py", "/ self.verify_at(1)", "/ self.verify_at(rows)", COSTS, F),
        ("the worst shape is raced", "costs.py", "max(self.shapes,", "min(self.shapes,", COSTS, F),
        ("a slow moment counts against a shape", "costs.py", "known = self.rising()", "known = self", COSTS, F),
        ("the first level costs twice", "costs.py", "max(0, levels - 1)", "levels", COSTS, F),
        (
            "costs stay flat beyond the last",
            "costs.py",
            "    places = sorted(known)\n",
            "    places = sorted(known)\n    at = min(at, places[-1])\n",
            COSTS,
            F,
        ),
    ),
    *of(
        "measure/",
        ("a busy machine runs on", "repeated.py", "self.race.busy or", "", f"{REPEATED} -k busy_machine", F),
        (
            "others wait for further runs",
            "repeated.py",
            "if not self.alone():",
            "if False:",
            f"{REPEATED} -k somebody_else",
            F,
        ),
        (
            "an arithmetic mean",
            "verdict.py",
            "math.exp(math.fsum(map(math.log, speedups)) / len(speedups))",
            "math.fsum(speedups) / len(speedups)",
            BY_HAND,
            F,
        ),
        ("a 90 % interval", "verdict.py", "(1 - CONFIDENCE) / 2", "1 - CONFIDENCE", BY_HAND, F),
        ("level is a gain", "verdict.py", "sum(speedup > 1 for", "sum(speedup >= 1 for", BY_HAND, F),
        ("yes before the interval says so", "verdict.py", "YES if low > 1", "YES if low > 0.9", BY_HAND, F),
        (
            "a group's tau is of all its prompts' lengths",
            "report.py",
            '"tau": tau(lanes),',
            '"tau": tau(traces),',
            f"{PAYS} -k groups",
            F,
        ),
        (
            "a disturbed race is believed",
            "racing.py",
            'if race.result()["disturbed"]:',
            "if False:",
            f"{PAYS} -k 'disturbed and once_more'",
            F,
        ),
    ),
]
