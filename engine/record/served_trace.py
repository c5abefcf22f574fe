"""ServedTrace: what a serving engine told of one request's steps. Knows no clock, no tree and no race.

vLLM writes it into its answers when it is started with `--per-request-spec-decode-metrics detailed`: under
`metrics.speculative_decoding` stand `per_step_accepted` and `per_step_drafted`, one number for each verification
(https://docs.vllm.ai/en/v0.32.0/features/speculative_decoding/acceptance_metrics/, experimental there).
"""

from dataclasses import asdict, dataclass
from typing import Any

from engine.record.parsing import LONGEST_TEXT, Listed, Whole, build, expect, shown
from engine.record.race_file import require, same_length, within

STEPS, DRAFTED = (1, 20_000), 400  # verifications of a request, and tokens drafted for one
FLAG = "--per-request-spec-decode-metrics detailed"
PLACE = "metrics.speculative_decoding"
STEPWISE = ("per_step_drafted", "per_step_accepted")
TOTALS = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")


@dataclass(frozen=True)
class ServedTrace:
    """One request: how many tokens each verification was given and how many it kept, in order. `model` and `text` may be "".

    vLLM also counts tokens as accepted that stand behind a stop and never came. They are none that the last verification kept.
    """

    drafted: list[int]
    accepted: list[int]
    model: str
    text: str

    @property
    def tau(self) -> float:
        """Mean tokens of a verification, the target's own included."""
        return 1 + sum(self.accepted) / len(self.accepted)

    def by_position(self) -> list[dict[str, int]]:
        """For each position in the draft, from 1: the verifications that drafted so far, and those that accepted so far."""
        counts = {"reached": self.drafted, "accepted": self.accepted}
        return [
            {"depth": depth} | {name: sum(each >= depth for each in steps) for name, steps in counts.items()}
            for depth in range(1, max(self.drafted) + 1)
        ]

    def to_dict(self) -> dict[str, Any]:
        """What the page shows."""
        return {**asdict(self), "tau": self.tau, "by_position": self.by_position()}

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ServedTrace":
        """The trace in an answer of vLLM. Raises `ValueError` with a sentence that names what is wrong."""
        metrics = expect(dict, values["metrics"], "metrics")
        found = metrics.get("speculative_decoding")
        require(
            found is not None,
            f"{PLACE} is not there. Start vLLM with a speculative config and {FLAG}, and ask for one text (n = 1).",
        )
        expect(dict, found, PLACE)
        for name in STEPWISE:
            require(name in found, f"{PLACE} has no {name}. Start vLLM with {FLAG}.")
        drafted, accepted = (build(Listed[Whole], found[name], f"{PLACE}.{name}") for name in STEPWISE)
        within(drafted, STEPS, f"{PLACE}.per_step_drafted", "verifications")
        same_length(accepted, drafted, f"{PLACE}.per_step_accepted", "per_step_drafted")
        for at, (many, kept) in enumerate(zip(drafted, accepted, strict=True)):
            require(
                0 <= kept <= many <= DRAFTED,
                f"{PLACE}: verification {at + 1} cannot accept {kept} of {many} drafted tokens (at most {DRAFTED} are read).",
            )
        require(max(drafted) > 0, f"{PLACE}: no verification drafted anything, so there is nothing to show.")
        for name, total in zip(TOTALS, (len(drafted), sum(drafted), sum(accepted)), strict=True):
            told = found.get(name, total)
            require(
                type(told) is int and told == total,
                f"{PLACE}.{name} must be {total:,}, the sum of its steps, got {shown(told)}.",
            )
        return cls(
            drafted,
            kept_of(accepted, values.get("usage")),
            build(str, values.get("model") or "", "model"),
            written(values),
        )


def kept_of(accepted: list[int], usage: Any) -> list[int]:
    """What each verification kept of tokens that came. Raises `ValueError` where fewer came than stops and limits can explain."""
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if type(tokens) is not int:
        return accepted
    *before, last = accepted
    came = tokens - len(accepted) - sum(before)
    require(
        came >= 0,
        f"{len(accepted):,} verifications that accepted {sum(accepted):,} tokens write more than usage.completion_tokens says: "
        f"{shown(tokens)}.",
    )
    return [*before, min(last, came)]


def is_served(values: Any) -> bool:
    """Whether these values are an answer of a serving engine and not a race file."""
    return isinstance(values, dict) and "metrics" in values and "lanes" not in values


def written(values: dict[str, Any]) -> str:
    """The text of the answer, cut to what is shown; "" where it holds none, as the last piece of a stream."""
    choices = expect(list, values.get("choices") or [], "choices")
    if not choices:
        return ""
    first = expect(dict, choices[0], "choices[0]")
    message = expect(dict, first.get("message") or {}, "choices[0].message")
    found = expect(str, first.get("text") or message.get("content") or "", "The text of choices[0]")
    return build(str, found[:LONGEST_TEXT], "The text of choices[0]")
