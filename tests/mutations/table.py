"""The planted mistakes: where each stands, what it changes, and the tests that must fail on it. Knows no process and no clock.

Most of them change the text or its law. Those marked "speed" cost speed only: token match keeps the text whatever is drafted.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """`old` stands exactly once in `file` and is replaced by `new`. `tests` are arguments of pytest; at least one test must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    costs: str = "text"


def of(room: str, *rows: tuple[str, ...]) -> list[Mutation]:
    return [Mutation(name, f"engine/{room}{file}", *rest) for name, file, *rest in rows]


EXACT, LONG = "tests/core/test_exact.py", "tests/forward/test_long_contexts.py"
TARGET, TREE, RULES = "tests/core/test_target.py", "tests/core/test_tree.py", "tests/acceptance/test_acceptance.py"
POLICIES, AUTO, FAST = (
    "tests/policies/test_policies.py",
    "tests/policies/test_auto.py",
    "tests/fast/test_equal_to_reference.py",
)
LIMITS, PROPHET = f"{POLICIES} -k keep_to_their_limits", f"{EXACT} -k always_right"
WINDOWS = "tests/forward/test_families.py"
DRAFTS, CHUNKS = f"{EXACT} -k drafts_own_cache", f"{LONG} -k 'several_chunks and llama'"
BATCHED, SHARES = "tests/forward/test_batched_forward.py", "tests/rounds/test_batched_rounds.py -k reckons"
BLOCK = "tests/drafters/test_published_dflash.py -k block_guesses"

MUTATIONS = [
    *of(
        "acceptance/",
        ("one noise for all depths", "token_match.py", "position + depth + 1 for", "position + 1 for", PROPHET),
        ("bonus from the root's row", "token_match.py", "Verdict(path, token)", "Verdict(path, draw(0))", PROPHET),
        ("residual not taken", "walk.py", "r, law = residual(r, d, p), self", "r, law = r, self", RULES),
        ("p and q swapped", "walk.py", "float(r[token] / d[token])", "float(d[token] / r[token])", RULES),
        ("a failed token stays in q", "without_replacement.py", "        d[token] = 0\n", "", RULES),
        (
            "division factor of another equation",
            "k_seq.py",
            "> rho * beta:",
            "> beta:",
            f"{POLICIES} -k division_factor",
        ),
        ("shortest path wins", "independent.py", "last = max(reached", "last = min(reached", RULES),
        ("typical without entropy", "typical.py", "if chance > limit[parent]:", "if chance > EPSILON:", RULES),
    ),
    *of(
        "policies/",
        ("a node too many", "beam.py", "heapq.nlargest(beam, ", "heapq.nlargest(beam + 1, ", LIMITS, "speed"),
        ("budget without the root", "expand_rerank.py", "keep=nodes - 1)", "keep=nodes)", LIMITS, "speed"),
        ("a level too deep", "sequoia.py", "range(1, room + 1)", "range(1, room + 2)", LIMITS),
        (
            "a key drawn twice",
            "dyspec.py",
            '"draft", position, node)',
            '"draft", position, 0)',
            f"{POLICIES} -k no_key",
        ),
        (
            "a key for all levels",
            "chains.py",
            '"draft", position, level)',
            '"draft", position, 1)',
            f"{POLICIES} -k no_key",
        ),
        (
            "the tree forgets its q",
            "drawing.py",
            "zip(nodes, q, strict=True)",
            "zip(nodes, log_q, strict=True)",
            f"{POLICIES} -k holds_the_q",
        ),
        (
            "draws spent in one place",
            "dyspec.py",
            "left[node] -= tree.q[child]",
            "left[node] -= 0",
            f"{POLICIES} -k dyspec_spends",
            "speed",
        ),
        (
            "drafting never rests",
            "auto.py",
            "self.rest = self.pause",
            "self.rest = 0",
            f"{AUTO} -k always_wrong",
            "speed",
        ),
        (
            "copies scored as favourites",
            "auto.py",
            "chance(self.chances, score, COPY)",
            "chance(self.chances, score, 0)",
            f"{AUTO} -k copies",
            "speed",
        ),
        (
            "NaN is drafted from",
            "asking.py",
            "not math.isfinite(most.sum())",
            "False",
            "tests/policies/test_asking.py -k NaN",
        ),
    ),
    *of(
        "",
        (
            "position by index",
            "tree.py",
            "base + depth for depth in self.depth",
            "base + at for at in range(len(self))",
            TREE,
        ),
        ("a mask of neighbours", "tree.py", "seen[parents[node], above]", "seen[node - 1, above]", TREE),
        (
            "the worst nodes are kept",
            "tree.py",
            "worst_last = [-score",
            "worst_last = [score",
            "tests/policies/test_expansion.py -k kept",
            "speed",
        ),
        (
            "a stop token is not shown",
            "decode.py",
            "return burst[: index + 1], ",
            "return burst[:index], ",
            f"{EXACT} -k stop_token",
        ),
        (
            "the window ends a token late",
            "decode.py",
            "context - 1 - position  #",
            "context - position  #",
            f"{EXACT} -k window",
        ),
        (
            "a sequence pays for the whole batch",
            "batch.py",
            "costs.verify_at(size * rows) / size",
            "costs.verify_at(size * rows)",
            SHARES,
            "speed",
        ),
        ("noise of the root's position", "sampling.py", "noise(positions[row], 1", "noise(positions[0], 1", PROPHET),
        ("the root's row is not committed", "target.py", "keep([0, *path])", "keep(path or [0])", TARGET),
    ),
    *of(
        "forward/",
        (
            "the second prefill chunk one position early",
            "session.py",
            "self.rows, self.rows + len(chunk))",
            "self.rows - (start > 0), self.rows - (start > 0) + len(chunk))",
            CHUNKS,
        ),
        (
            "a chunk's last token is lost",
            "session.py",
            "ids[start : start + PREFILL_CHUNK]",
            "ids[start : start + 511]",
            CHUNKS,
        ),
        (
            "a padded node sees its siblings",
            "batch.py",
            "before : cache.rows + rows] = blind",
            "before : cache.rows + rows] = 0",
            f"{BATCHED} -k 'padded and gpt2'",
        ),
        (
            "a cache that moved reads its old place",
            "batch.py",
            "last.stand_on(self.kv[:, :, place])",
            "last.stand_on(last.kv)",
            f"{BATCHED} -k left_place",
        ),
        ("nothing is forgotten", "session.py", "self.cache.rows = rows", "pass", DRAFTS),
        ("a commit in tree order", "cache.py", "if row != offset]", "if row > offset]", TARGET),
        (
            "a window one row too wide",
            "windows.py",
            "places[None] <= ",
            "places[None] < ",
            f"{WINDOWS} -k trees_logits",
        ),
        (
            "a window counts rows",
            "session.py",
            "self.places[self.rows : end] = positions",
            "self.places[self.rows : end] = range(self.rows, end)",
            f"{WINDOWS} -k trees_logits",
        ),
        (
            "a draft's rows lose their positions",
            "session.py",
            "= self.places[kept]",
            "= 0",
            f"{WINDOWS} -k races",
            "speed",
        ),
        (
            "soft caps under folded attention",
            "runner_gpu.py",
            'not in ("folded_sdpa", "eager")',
            'not in ("folded_sdpa",)',
            f"{WINDOWS} -k gpus_graphs",
        ),
        (
            "a mask over the first rows",
            "cache.py",
            "mask[:, columns - visible.shape[1] :]",
            "mask[:, : visible.shape[1]]",
            TARGET,
        ),
        ("features a layer early", "llama.py", "taps.count(number + 1)", "taps.count(number)", f"{LONG} -k features"),
        ("logits of the first row", "llama.py", "normed[-1:] if last_only", "normed[:1] if last_only", CHUNKS),
    ),
    *of(
        "drafters/",
        (
            "a drafted node sees itself alone",
            "drafted_rows.py",
            "[*self.seen.get(tree.keys[tree.parents[node]], ()), first + row]",
            "[first + row]",
            DRAFTS,
            "speed",
        ),
        ("the draft misses accepted tokens", "model.py", "path = path[len(kept) :]", "path = []", DRAFTS, "speed"),
        ("a block's context lacks the root", "dflash.py", "features[[0, *path]]", "features[path]", BLOCK, "speed"),
    ),
    *of(
        "nets/",
        (
            "a slot guesses the place after its own",
            "dflash.py",
            "self.norm(x[1:])",
            "self.norm(x[:-1])",
            BLOCK,
            "speed",
        ),
        (
            "a layer's output counted as its input",
            "dflash_formats.py",
            "own.get(key), 0 if speculators else 1",
            "own.get(key), 0",
            BLOCK,
            "speed",
        ),
        (
            "drafted tokens go on from the output before its norm",
            "eagle3.py",
            "return self.norm_out(x) if sizes.normed_output else x",
            "return x",
            "tests/drafters/test_published_eagle3.py -k fed",
            "speed",
        ),
        (
            "every block of a head is its first",
            "medusa_formats.py",
            "block=0 if repeated else j",
            "block=0",
            "tests/drafters/test_published_medusa.py -k several_blocks",
            "speed",
        ),
        (
            "queries exported as keys",
            "exported.py",
            "queries, keys, values = ",
            "keys, queries, values = ",
            "tests/models/test_export.py -k bit_for_bit",
            "speed",
        ),
    ),
    *of(
        "kernels/",
        (
            "attention forgets what lies 600 rows back",
            "exact_attention.py",
            "        most = most_of(some)\n",
            "        some[: max(0, end - 600)] = LOWEST\n        most = most_of(some)\n",
            f"{LONG} -k 'thousand_rows and compiled and all'",
        ),
        (
            "a row does not see itself",
            "phases.py",
            "- columns + last + 1\n",
            "- columns + last\n",
            f"{LONG} -k 'thousand_rows and compiled and all'",
        ),
        (
            "a row of a batch sees what its sequence's first row sees",
            "sequences.py",
            "put(sequence.visible[row - begin],",
            "put(sequence.visible[0],",
            f"{BATCHED} -k 'bits and qwen3'",
        ),
        (
            "a commit reads the wrong row",
            "attention.py",
            "rows[base + moves[index, 1]]",
            "rows[base + moves[index, 0]]",
            TARGET,
        ),
        (
            "scores read under the wrong kind",
            "expansion.py",
            "min(rank, OTHER)",
            "FAVOURITE",
            f"{AUTO} -k chances",
            "speed",
        ),
        (
            "of equals the later one goes first",
            "expansion.py",
            "score > nodes[order[place - 1]].score",
            "score >= nodes[order[place - 1]].score",
            "tests/policies/test_expansion.py -k terms",
            "speed",
        ),
        (
            "a pruned tree's parents are mixed up",
            "expansion.py",
            "index[parent] if parent else 0",
            "parent",
            "tests/policies/test_expansion.py -k kept",
            "speed",
        ),
        (
            "drafted nodes at the wrong place",
            "growing_compiled.py",
            "root.position + node.depth",
            "root.position + place",
            f"{FAST} -k drafters.model_compiled",
            "speed",
        ),
        (
            "greedy scores are not sharpened",
            "ranking_compiled.py",
            "keys[best[0]]) * power",
            "keys[best[0]])",
            f"{FAST} -k kernels.ranking_compiled",
            "speed",
        ),
    ),
    *of(
        "models/",
        (
            "8-bit rows share columns of outliers",
            "quantising.py",
            "llm_int8_threshold=0.0",
            "llm_int8_threshold=6.0",
            "tests/models/test_quantising.py -k no_row",
        ),
    ),
]
