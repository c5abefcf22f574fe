"""Curve words: what batches, contexts and forced acceptance give, for people. Knows their figures; knows no race."""

from engine.measure import forced
from engine.measure.peers import SAME
from engine.record.disturbance import disturbed_twice


def batches(found: dict) -> list[str]:
    """A table of batch sizes, then a sentence for every setting and for every size that was left out."""
    if not found["settings"]:
        return ["No batch was decoded: none of the raced systems writes plain decoding's own tokens."]
    rows = found["settings"]
    heads = (
        f"{row['setting'] + '/s':>{len(row['setting']) + 6}}{'speedup':>9}{'tau':>6}{'identical':>11}" for row in rows
    )
    lines = ["Many prompts at once, in tokens/s of all together:", f"{'batch':<7}{'plain/s':>9}" + "".join(heads)]
    for points in zip(*(row["points"] for row in rows), strict=True):
        cells = (
            f"{each['tokens_per_s']:>{len(row['setting']) + 6}.0f}{each['speedup']:>8.2f}x{each['tau']:>6.2f}{same(each):>11}"
            for row, each in zip(rows, points, strict=True)
        )
        lines.append(f"{points[0]['batch']:<7}{points[0]['plain_tokens_per_s']:>9.0f}" + "".join(cells))
    lines += [crossing(row) for row in rows if row["points"]]
    lines += [
        f"A batch of {each['batch']} with {row['setting']}: {each['disturbed']}"
        for row in rows
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
    where = (
        f"a batch of {row['crossing']}"
        if row["crossing"]
        else f"none of the batches up to {row['points'][-1]['batch']}"
    )
    return f"{row['setting']} falls behind plain decoding at {where}."


def contexts(found: dict) -> list[str]:
    """A table of lengths and settings, then a sentence for every length that was left out."""
    rows = [{"context": length["context"]} | each for length in found["lengths"] for each in length["settings"]]
    wide = max((len(row["setting"]) for row in rows), default=0) + 2
    lines = [
        f"Behind long contexts, {found['prompts']} prompts, without the prompt's reading:",
        f"{'context':<9}{'setting':<{wide}}{'plain/s':>9}{'speedup':>9}{'with it':>9}{'tau':>6}{'identical':>11}",
    ]
    lines += [
        f"{row['context']:<9}{row['setting']:<{wide}}{row['plain_tokens_per_s']:>9.0f}{row['speedup']:>8.2f}x"
        f"{row['speedup_with_prefill']:>8.2f}x{row['tau']:>6.2f}{SAME[row['identical']]:>11}"
        for row in rows
    ]
    lines += [
        f"Behind {row['context']:,} tokens with {row['setting']}:{said}"
        for row in rows
        if (said := disturbed_twice(row["disturbed"], found["prompts"], "prompts"))
    ]
    return (lines if rows else []) + [each["why"] for each in found["refused"]]


def estimates(found: dict) -> list[str]:
    """A sentence for every setting that can have so many tokens a round, then why the others cannot."""
    return [*(forced.sentences(found["rows"]) if found["rows"] else []), *found["refused"]]
