"""Curve words: what batches, contexts and forced acceptance give, for people. Knows their figures; knows no race."""

from engine.measure import forced
from engine.measure.peers import SAME
from engine.record.disturbance import disturbed_twice


def batches(found: dict) -> list[str]:
    """A table of batch sizes, then a sentence for every setting and for every size that was left out."""
    if not found["settings"]:
        return ["No batch was decoded: none of the raced systems writes plain decoding's own tokens."]
    columns = [
        [f"{'batch':<7}", *(f"{each['batch']:<7}" for each in found["settings"][0]["points"])],
        [f"{'plain/s':>9}", *(f"{each['plain_tokens_per_s']:>9.0f}" for each in found["settings"][0]["points"])],
    ]
    for row in found["settings"]:
        wide = len(row["setting"]) + 2
        columns += [
            [
                f"{row['setting'] + '/s':>{wide + 4}}",
                *(f"{each['tokens_per_s']:>{wide + 4}.0f}" for each in row["points"]),
            ],
            [f"{'speedup':>9}", *(f"{each['speedup']:>8.2f}x" for each in row["points"])],
            [f"{'tau':>6}", *(f"{each['tau']:>6.2f}" for each in row["points"])],
            [f"{'identical':>11}", *(f"{same(each):>11}" for each in row["points"])],
        ]
    lines = ["Many prompts at once, in tokens/s of all together:"] + [
        "".join(cells) for cells in zip(*columns, strict=True)
    ]
    lines += [crossing(row) for row in found["settings"] if row["points"]]
    lines += [
        f"A batch of {each['batch']} with {row['setting']}: {each['disturbed']}"
        for row in found["settings"]
        for each in row["points"]
        if each["disturbed"]
    ]
    if found["cycled"]:
        lines.append(f"Batches beyond {found['prompts']} decode the same prompts again with other seeds.")
    return lines + [f"A batch of {each['batch']} was left out: {each['why']}" for each in found["refused"]]


def same(point: dict) -> str:
    """Whether all texts are those of decoding alone, or how many are not; near-ties are differences that rounding explains."""
    if point["identical"]:
        return "yes"
    return f"{point['near_ties']} tied" if point["near_ties"] == point["unlike"] else f"{point['unlike']} NOT"


def crossing(row: dict) -> str:
    """At which size a setting falls behind plain decoding."""
    sizes = [each["batch"] for each in row["points"]]
    if row["crossing"] is None:
        return f"{row['setting']} falls behind plain decoding at none of the batches up to {sizes[-1]}."
    return f"{row['setting']} falls behind plain decoding at a batch of {row['crossing']}."


def contexts(found: dict) -> list[str]:
    """A table of lengths and settings, then a sentence for every length that was left out."""
    names = [each["setting"] for length in found["lengths"] for each in length["settings"]]
    wide = max(map(len, names), default=0) + 2
    lines = []
    if names:
        lines = [
            f"Behind long contexts, {found['prompts']} prompts, without the prompt's reading:",
            f"{'context':<9}{'setting':<{wide}}{'plain/s':>9}{'speedup':>9}{'with it':>9}{'tau':>6}{'identical':>11}",
        ]
    for length in found["lengths"]:
        lines += [
            f"{length['context']:<9}{each['setting']:<{wide}}{each['plain_tokens_per_s']:>9.0f}{each['speedup']:>8.2f}x"
            f"{each['speedup_with_prefill']:>8.2f}x{each['tau']:>6.2f}{SAME[each['identical']]:>11}"
            for each in length["settings"]
        ]
    lines += [
        f"Behind {length['context']:,} tokens with {each['setting']}:{said}"
        for length in found["lengths"]
        for each in length["settings"]
        if (said := disturbed_twice(each["disturbed"], found["prompts"], "prompts"))
    ]
    return lines + [each["why"] for each in found["refused"]]


def estimates(found: dict) -> list[str]:
    """A sentence for every setting that can have so many tokens a round, then why the others cannot."""
    return [*(forced.sentences(found["rows"]) if found["rows"] else []), *found["refused"]]
