"""ServedTrace: what a serving engine told of one request's steps. Knows no clock, no tree and no race.

vLLM writes it into its answers when it is started with `--per-request-spec-decode-metrics detailed`: under
`metrics.speculative_decoding` stand `per_step_accepted` and `per_step_drafted`, one number for each verification
(https://docs.vllm.ai/en/v0.32.0/features/speculative_decoding/acceptance_metrics/, experimental there). It counts only verifications
that had a draft, so a request's passes are its tokens less those accepted.
"""

from dataclasses import asdict, dataclass
from typing import Any

from engine.record.files import MOST_BYTES
from engine.record.parsing import (
    LONGEST_TEXT,
    BoundedInt,
    FailFastList,
    NonNegativeInt,
    convert_json_value_validated,
    format_value_for_error,
    parse_json,
    require,
    validate_equal_length,
    validate_length,
    validate_type,
)

STEPS, DRAFTED = (1, 20_000), 400  # verifications of a request, and tokens drafted for one
FLAG = "--per-request-spec-decode-metrics detailed"
PLACE = "metrics.speculative_decoding"
STEPWISE = ("per_step_drafted", "per_step_accepted")
TOTALS = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")


@dataclass(frozen=True)
class ServedTrace:
    """One request: how many tokens each verification was given and how many it kept, in order. `model` and `text` may be "".

    vLLM also counts tokens as accepted that stand behind a stop and never came. They are none that the last verification kept.
    `passes` are the target's, with a draft and without; None where the answer does not say how many tokens it has.
    """

    drafted: list[int]
    accepted: list[int]
    model: str
    text: str
    passes: int | None = None

    @property
    def tau(self) -> float:
        """Mean tokens of a pass, the target's own included; of a verification with a draft where passes are not known."""
        return 1 + sum(self.accepted) / (self.passes or len(self.accepted))

    def count_by_draft_position(self) -> list[dict[str, int]]:
        """For each position in the draft, from 1: the verifications that drafted so far, and those that accepted so far."""
        counts = {"reached": self.drafted, "accepted": self.accepted}
        return [
            {"depth": depth} | {name: sum(each >= depth for each in steps) for name, steps in counts.items()}
            for depth in range(1, max(self.drafted) + 1)
        ]

    def to_dict(self) -> dict[str, Any]:
        """What the page shows."""
        return {**asdict(self), "tau": self.tau, "by_position": self.count_by_draft_position()}

    @classmethod
    def from_vllm_answer(cls, answer: dict[str, Any]) -> "ServedTrace":
        """The trace in an answer of vLLM. Raises `ValueError` with a sentence that names what is wrong."""
        metrics = validate_type(dict, answer["metrics"] or {}, "metrics")  # null stands for what is not told
        found = metrics.get("speculative_decoding")
        require(
            found is not None,
            f"{PLACE} is not there. Start vLLM with a speculative config and {FLAG}, and ask for one text (n = 1).",
        )
        validate_type(dict, found, PLACE)
        nothing = "so there is nothing to show."
        # Where no pass had a draft, its steps are null even with `FLAG`
        require(found.get("num_spec_steps") != 0, f"{PLACE}: no pass of this text had a draft, {nothing}")
        for name in STEPWISE:
            require(found.get(name) is not None, f"{PLACE} has no {name}. Start vLLM with {FLAG}.")
        drafted, accepted = (
            convert_json_value_validated(FailFastList[BoundedInt], found[name], f"{PLACE}.{name}") for name in STEPWISE
        )
        validate_length(drafted, STEPS, f"{PLACE}.per_step_drafted", "verifications")
        validate_equal_length(accepted, drafted, f"{PLACE}.per_step_accepted", "per_step_drafted")
        for at, (many, kept) in enumerate(zip(drafted, accepted, strict=True)):
            require(
                0 <= kept <= many <= DRAFTED,
                f"{PLACE}: verification {at + 1} cannot accept {kept} of {many} drafted tokens (at most {DRAFTED} are read).",
            )
        require(max(drafted) > 0, f"{PLACE}: no verification drafted anything, {nothing}")
        for name, total in zip(TOTALS, (len(drafted), sum(drafted), sum(accepted)), strict=True):
            told = found.get(name)
            require(
                told is None or (type(told) is int and told == total),
                f"{PLACE}.{name} must be {total:,}, the sum of its steps, got {format_value_for_error(told)}.",
            )
        usage = validate_type(dict, answer.get("usage") or {}, "usage")
        came = usage.get("completion_tokens")
        tokens = None if came is None else convert_json_value_validated(NonNegativeInt, came, "usage.completion_tokens")
        kept = accepted if tokens is None else cut_accepted_counts_to_completion(accepted, tokens)
        # A last burst may be cut behind what was accepted
        passes = None if tokens is None else max(tokens - sum(kept), len(kept))
        return cls(
            drafted,
            kept,
            convert_json_value_validated(str, answer.get("model") or "", "model"),
            completion_text_of(answer),
            passes,
        )


def cut_accepted_counts_to_completion(accepted_by_verification: list[int], completion_tokens: int) -> list[int]:
    """What each verification kept of `completion_tokens` that came. Raises `ValueError` where fewer came than stops and limits can
    explain.
    """
    *before, last = accepted_by_verification
    passes, accepted = len(accepted_by_verification), sum(accepted_by_verification)
    came = completion_tokens - passes - sum(before)
    require(
        came >= 0,
        f"{passes:,} verifications that accepted {accepted:,} tokens write more than usage.completion_tokens says: "
        f"{format_value_for_error(completion_tokens)}.",
    )
    return [*before, min(last, came)]


def is_event_stream(text: str) -> bool:
    """Whether the text is an event stream as servers send it, saved as it came."""
    return text.lstrip("\ufeff \r\n").startswith("data:")


def join_event_stream(text: str) -> dict[str, Any]:
    """One answer from an event stream's text: its pieces' texts joined, and the last values of all else.

    Raises `ValueError` for a piece that is no JSON or no object, for several texts, and for a stream without a piece.
    """
    require(
        len(text) <= MOST_BYTES, f"The stream has {len(text) / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read."
    )
    found: dict[str, Any] = {}
    texts: list[str] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        data = line[5:].strip() if line.startswith("data:") else ""
        if not data or data == "[DONE]":
            continue
        piece = validate_type(
            dict, parse_json(data, MOST_BYTES, f"The event in line {number}"), f"The event in line {number}"
        )
        for choice in validate_type(list, piece.get("choices") or [], "choices"):
            index = validate_type(dict, choice, "A choice").get("index") or 0
            require(index == 0, "The stream holds several texts. Ask for one (n = 1).")
            delta = validate_type(dict, choice.get("delta") or {}, "A choice's delta")
            texts.append(validate_type(str, choice.get("text") or delta.get("content") or "", "The text of a choice"))
        found |= {name: value for name, value in piece.items() if value is not None}
    require(bool(found), "The stream holds no event.")
    return found | {"choices": [{"text": "".join(texts)}]}


def is_served_answer(answer: Any) -> bool:
    """Whether these values are an answer of a serving engine and not a race file."""
    return isinstance(answer, dict) and "metrics" in answer and "lanes" not in answer


def completion_text_of(answer: dict[str, Any]) -> str:
    """The completion's text in a server's JSON answer, cut to what is shown; "" where it holds none."""
    choices = validate_type(list, answer.get("choices") or [], "choices")
    if not choices:
        return ""
    first = validate_type(dict, choices[0], "choices[0]")
    message = validate_type(dict, first.get("message") or {}, "choices[0].message")
    found = validate_type(str, first.get("text") or message.get("content") or "", "The text of choices[0]")
    return convert_json_value_validated(str, found[:LONGEST_TEXT], "The text of choices[0]")
