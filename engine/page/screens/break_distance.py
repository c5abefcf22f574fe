"""Distance: how far a broken system (`engine.breaks`) is from the target's distribution, beside the right one. Knows probabilities.

Distances are total variation, half the sum of |p - p'|: 0 is the same distribution, 1 has nothing in common.
"""

from collections.abc import Generator
from dataclasses import replace

import torch
from torch.distributions import Binomial

from engine.acceptance.token_match import TokenMatch
from engine.breaks import BREAKS
from engine.decode import Round
from engine.forward.session import Session
from engine.models.constraint import compile_pair_constraint
from engine.models.pairs import LoadedPair
from engine.models.text import token_text_or_vocabulary_entry
from engine.race import Lane, Settings, encode_prompt
from engine.record.quiet import Message, MessageAndSignalGenerator
from engine.rounds.guiding import mask_forbidden_logits
from engine.sampling import Sampling
from engine.systems import System, resolve_system_name
from engine.target import Target
from engine.tree import LARGEST_TREE

TOKENS = 48  # of the right system's text, along which the broken target is led
DRAWS, BATCH = 1200, 40  # first tokens drawn by each rule, in all and between two reports
EXAMPLES, TAIL = 5, 12  # tokens that are shown, and tokens of the text before them
# Tells how far it is. Returns the figures, and tokens with the distributions `[V]` of the right and the broken system behind them
MeasurementGenerator = Generator[Message, None, tuple[dict, list[int], torch.Tensor, torch.Tensor]]


def measure_broken_system_distance(pair: LoadedPair, settings: Settings) -> MessageAndSignalGenerator:
    """Measures the broken system that `settings.systems` ends with, such as ("tree", "tree!mask"), on the settings' prompt and seed.

    The temperature is the settings', or 1 where that is 0. It takes a few seconds; close the iterator to cancel.

    Yields dicts of plain values: {"break": name, "done": share from 0 to 1}. The last one has "done" 1, "end" and also

    - "title": the break's; "temperature": that of the measured distributions
    - "wrong", "right": distance of the broken and of the right system, 0 to 1
    - "worst": the largest distance of the broken one at a single place; None for `acceptance`
    - "floor": what exact sampling shows by chance with so many draws; None where nothing is drawn
    - "places": tree nodes compared (mask, positions, trim), else None; "draws": first tokens drawn by each rule (acceptance), else None
    - "after": the end of the text behind which the examples stand
    - "rows": examples, [{"token": its label, "right": p, "wrong": p}], the ones that differ most first
    - "sentence": the result in words

    Raises `ValueError` at once when the last system is not a broken one, the prompt does not fit the context, or the target keeps
    states, which cannot go from node to node of a tree and back.
    """
    system = resolve_system_name(settings.systems[-1])
    if not system.broken:
        raise ValueError(
            f"{system.name} is not broken, so there is nothing to measure. Name a broken system, such as {system.name}!mask."
        )
    if pair.target.recurrent and not BREAKS[system.broken].replaced_system_fields:
        raise ValueError(
            f"How far {system.name} is off is measured by going back in the target's cache, and this target keeps states. "
            "Race it instead."
        )
    prompt = encode_prompt(pair, settings.prompt)
    bound = compile_pair_constraint(pair, settings.constraint)
    sampling = Sampling(settings.temperature or 1.0, seed=settings.seed, constraint=bound)
    short = replace(settings, max_new_tokens=min(settings.max_new_tokens, TOKENS))
    by_rule = BREAKS[system.broken].replaced_system_fields
    work = (
        measure_broken_and_exact_rule_by_first_draws(pair, system, prompt, sampling)
        if by_rule
        else measure_broken_target_at_tree_nodes(pair, system, short, prompt, sampling)
    )
    return run_measurement_and_report(pair, system, sampling.temperature, work)


def run_measurement_and_report(
    pair: LoadedPair, system: System, temperature: float, measurement: MeasurementGenerator
) -> MessageAndSignalGenerator:
    figures, behind, right, wrong = yield from measurement
    tokens = (right - wrong).abs().topk(EXAMPLES).indices.tolist()
    rows = [
        {
            "token": token_text_or_vocabulary_entry(pair.tokenizer, token),
            "right": float(right[token]),
            "wrong": float(wrong[token]),
        }
        for token in tokens
    ]
    head = {"end": True, "break": system.broken, "done": 1.0, "title": BREAKS[system.broken].title}
    after = pair.tokenizer.decode(behind[-TAIL:], skip_special_tokens=True)
    yield {**head, "temperature": temperature, **figures, "after": after, "rows": rows}


@torch.inference_mode()
def measure_broken_target_at_tree_nodes(
    pair: LoadedPair, system: System, settings: Settings, prompt_tokens: list[int], sampling: Sampling
) -> MeasurementGenerator:
    """Measures a broken target: the right system writes, the broken one verifies its trees, plain decoding visits every node."""
    right = resolve_system_name(system.name.replace(f"!{system.broken}", ""))
    lane = Lane(pair, right, settings, replace(sampling, temperature=settings.temperature), prompt_tokens)
    capacity = len(prompt_tokens) + settings.max_new_tokens + LARGEST_TREE
    guide = sampling.constraint.create_guide_at_text_start() if sampling.constraint else None
    broken, plain = system.open_target(pair, capacity, False), pair.target.open_session(capacity)
    broken.prefill_and_return_features(prompt_tokens[:-1])
    plain.prefill(prompt_tokens[:-1])
    text, wrongs, owns, furthest = list(prompt_tokens), [], [], -1.0
    try:
        for each in lane.decoding:
            p = sampling.probabilities(each.logits.cpu()).double()
            wrong, own = broken.verify(each.tree)[0], verify_and_commit_node_by_node(plain, each)
            broken.commit(each.verdict.path)
            if guide:
                wrong, own = (
                    system.constraint_mask(guide, each.tree, wrong),
                    mask_forbidden_logits(guide, each.tree, own),
                )
                guide.advance(each.burst)
            off = sampling.probabilities(wrong.cpu()).double()
            wrongs.append(total_variation_distance(p, off))
            owns.append(total_variation_distance(p, sampling.probabilities(own.cpu()).double()))
            place = max((0, *each.verdict.path), key=lambda node: float(wrongs[-1][node]))
            if (far := float(wrongs[-1][place])) > furthest:
                behind = text + [each.tree.tokens[node] for node in each.tree.path_below_root(place)]
                furthest, example = far, (behind, p[place], off[place])
            text += each.burst
            yield {
                "break": system.broken,
                "done": min(0.99, (len(text) - len(prompt_tokens)) / settings.max_new_tokens),
            }
    finally:
        lane.close()
    wrong = torch.cat(wrongs)
    mean, worst, floor = float(wrong.mean()), float(wrong.max()), float(torch.cat(owns).mean())
    sentence = (
        f"At {len(wrong)} tree nodes the broken target's distribution is {format_distance(mean)} away from the right one on average, "
        f"{format_distance(worst)} at worst; the right one is {format_distance(floor)} away from plain decoding, which is rounding."
    )
    figures = {"wrong": mean, "right": floor, "worst": worst, "floor": None, "places": len(wrong), "draws": None}
    return figures | {"sentence": sentence}, *example


def verify_and_commit_node_by_node(plain_session: Session, finished_round: Round) -> torch.Tensor:
    """Logits `[N, V]` behind a round's nodes, from forwards of one token, each on a cache of its own path; then commits the path."""
    base, tree = plain_session.rows, finished_round.tree
    logits: dict[int, torch.Tensor] = {}
    waiting = [*finished_round.verdict.path[::-1], 0, 0]  # all of the tree depth first, and then the path
    while waiting:
        node = waiting.pop()
        waiting += [] if node in logits else tree.children(node)
        plain_session.rewind(base + tree.depth[node])
        logits[node] = plain_session.forward([tree.tokens[node]], [plain_session.rows])[0][0].clone()
        plain_session.keep([0])
    return torch.stack([logits[node] for node in range(len(tree))])


@torch.inference_mode()
def measure_broken_and_exact_rule_by_first_draws(
    pair: LoadedPair, system: System, prompt_tokens: list[int], sampling: Sampling
) -> MeasurementGenerator:
    """Measures a broken rule: the law of the first token after the prompt.

    The broken system's tree holds favourites, so it is the same every time. Its own rule decides on that tree again and again, and so
    does token match, which is exact on any tree. Each time the noise is that of another position.
    """
    capacity = len(prompt_tokens) + 2 * LARGEST_TREE
    sampling = replace(sampling, constraint=None)  # the rule is compared, whatever a constraint leaves of p
    drafter, policy, naive = system.build_parts(pair, capacity, system.depth, system.width, system.nodes)
    target = Target(pair.target, capacity, drafter.reads_features)
    drafter.bind_target_cache(target.session.cache)
    drafter.begin(prompt_tokens, target.prefill_and_return_features(prompt_tokens[:-1]))
    tree = policy.grow(drafter, prompt_tokens[-1], target.committed_rows, sampling, system.depth)
    logits = target.verify(tree)[0].cpu()
    p, stride = sampling.probabilities(logits[0]).double(), max(tree.depth) + 1
    rules, counts = (naive, TokenMatch()), torch.zeros(2, len(p), dtype=torch.float64)
    for draw in range(DRAWS):
        for rule, count in zip(rules, counts, strict=True):
            verdict = rule.decide(tree, logits, sampling, draw * stride)
            count[tree.tokens[verdict.path[0]] if verdict.path else verdict.bonus] += 1
        if draw % BATCH == BATCH - 1:
            yield {"break": system.broken, "done": min(0.99, (draw + 1) / DRAWS)}
    wrong, right = total_variation_distance(p, counts / DRAWS).tolist()
    floor = expected_total_variation_of_samples(p, DRAWS)
    sentence = (
        f"In {DRAWS:,} draws of the first token the naive rule is {format_distance(wrong)} away "
        f"from the target's distribution, the exact rule {format_distance(right)}; "
        f"chance alone makes {format_distance(floor)} of so many draws."
    )
    figures = {"wrong": wrong, "right": right, "worst": None, "floor": floor, "places": None, "draws": DRAWS}
    return figures | {"sentence": sentence}, prompt_tokens, p, counts[0] / DRAWS


def total_variation_distance(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Total variation `[...]` between distributions `[..., V]`."""
    return (p - q).abs().sum(-1) / 2


def expected_total_variation_of_samples(p: torch.Tensor, draw_count: int) -> float:
    """The expected distance between `p [V]` and the frequencies of `draw_count` draws from it (de Moivre's mean absolute deviation)."""
    p = p.double()[(p > 0) & (p < 1)]
    return float((p * (1 - p) * Binomial(draw_count - 1, p).log_prob((draw_count * p).floor()).exp()).sum())


def format_distance(distance: float) -> str:
    """A distance as people read it, without an exponent."""
    return f"{distance:.2f}" if distance >= 0.005 else f"{distance:.7f}"
