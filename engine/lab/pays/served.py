"""Served: whether guessing pays in a server that runs already. Knows addresses, answers and seconds; loads no model.

Two arms take turns: the server that guesses, and plain decoding. That is a second address, or the same server where a request may leave
its guesses out. At every size so many streams are sent at once, a wave, to each arm, in another order every wave. A wave's speedup
compares seconds a token from its first request to its last piece, prefill and network included. The mean over waves is geometric, and
its interval is a bootstrap over waves. A short wave comes before, unmeasured, for each arm.

Equal texts have equally many tokens. Where the arms' counts for one text differ, this side's tokenizer counts all texts of both, and
the report names the arm whose counts are farther from it.
Above temperature 0 texts are drawn and need not be equal. The plain server then says how likely it finds both arms' texts, and a speed
with far less likely texts is no speed. Where it does not tell, a greedy wave of each arm is compared first.

A file with fewer prompts than the waves take is begun anew with the next seed; who copies from earlier answers gains by that.
Acceptance is told beside the verdict and is never one.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from tqdm import tqdm

from engine.measure.curves.batches import WARM_UP_TOKENS
from engine.measure.prompts import FEWEST
from engine.measure.verdict import (
    CONFIDENCE,
    bootstrap_interval_of_geometric_mean,
    compute_speedups_by_prompt,
    draw_bootstrap_indices,
    geometric_mean,
    judge_yes_no_or_only,
)
from engine.models.loading import hardware_name, load_and_check_tokenizer_and_config, validate_or_choose_device
from engine.models.pairs import PAIRS
from engine.race import Settings
from engine.record.trace import FAILED
from engine.remote import telling
from engine.remote.scoring import request_mean_log_probability_of_text
from engine.remote.server import AnswerStream, OpenAICompatibleServer
from engine.remote.telling import GuessTotals, ServerFacts

SIZES = "1,4,16"
SCORED = 8  # texts of each arm, at each size
UNLIKELY = 1.0  # nats a token: between arms of one law a few short texts differ by a third of it
ARMS, VERSION = ("plain", "guessing"), 1  # of a row
YARDSTICK = "small"  # the pair whose tokenizer counts where two servers disagree


@dataclass(frozen=True)
class ServerArm:
    """One side of a comparison: a server, and the `request_fields` that go into every request beside the text and its length."""

    server: OpenAICompatibleServer
    facts: ServerFacts
    request_fields: dict[str, Any]
    is_speculative: bool

    @property
    def label(self) -> str:
        """The engine and its host and port: both arms may serve a model of one name."""
        return f"{self.facts.engine or 'The server'} at {OpenAICompatibleServer(self.server.address).label}"


@dataclass(frozen=True)
class RequestWave:
    """The answers to requests that were sent at the same time.

    `guess_totals` is None where the server tells nothing of them, or what cannot be, which `implausible_guesses_reason` says then.
    """

    texts: list[str]
    token_counts: list[int]
    seconds: float
    guess_totals: GuessTotals | None
    implausible_guesses_reason: str = ""

    @property
    def total_tokens(self) -> int:
        return sum(self.token_counts)


def identify_server_arm(address: str, model: str, is_speculative: bool) -> ServerArm:
    server = OpenAICompatibleServer(telling.add_v1_path_if_address_has_none(address), model)
    about = telling.fetch_server_facts(server)
    asked = {"stream_options": {"include_usage": True}} | telling.ASKED.get(about.engine, {})
    return ServerArm(OpenAICompatibleServer(server.address, about.model), about, asked, is_speculative)


def build_plain_and_speculative_arms(
    address: str, plain_address: str | None, model: str
) -> tuple[ServerArm, ServerArm]:
    """Plain decoding's arm and the guessing one. Raises `ValueError` where there is no way to have both."""
    guessing = identify_server_arm(address, model, True)
    if plain_address is None:
        if (switch := telling.request_fields_disabling_speculation(guessing.facts)) is None:
            raise ValueError(
                f"{guessing.label} cannot leave out its guesses for one request; only a llama-server that tells {telling.N_MAX} can. "
                "Start it a second time without a drafter, and name that one by --plain."
            )
        return replace(guessing, request_fields=guessing.request_fields | switch, is_speculative=False), guessing
    if telling.add_v1_path_if_address_has_none(plain_address).rstrip("/") == guessing.server.address.rstrip("/"):
        label = OpenAICompatibleServer(guessing.server.address, model).label
        raise ValueError(f"--server and --plain are the same address, {label}. Name two servers.")
    return identify_server_arm(plain_address, model, False), guessing


def number_requests_by_wave(prompt_count: int, concurrency: int) -> list[list[int]]:
    """The waves' streams, by number. The prompt of a stream is its number modulo the prompts; enough waves for an interval."""
    waves = max(FEWEST, math.ceil(prompt_count / concurrency))
    return [list(range(at * concurrency, (at + 1) * concurrency)) for at in range(waves)]


def send_concurrent_requests_and_wait(
    arm: ServerArm, request_numbers: list[int], prompts: list[str], settings: Settings, max_tokens: int, as_chat: bool
) -> RequestWave:
    """One wave. Raises `ValueError` with the server's own sentence where an answer fails, and where its tokens are not told."""
    answers = []
    for stream in request_numbers:
        again, at = divmod(stream, len(prompts))
        how = {"max_tokens": max_tokens, "temperature": settings.temperature, "seed": settings.seed + again}
        answers.append(
            AnswerStream(arm.server, prompts[at], how | arm.request_fields, as_chat, reads_past_text_end=True)
        )
    before = telling.fetch_vllm_guess_totals(arm.server) if arm.facts.engine == "vLLM" else None
    texts, ended = [], []
    try:
        for answer in answers:
            answer.start_request_in_reader_thread()
        for answer in answers:
            pieces = answer.wait_for_pieces()
            if pieces[-1].end_reason == FAILED:
                hint = " Where its model has no chat template, --raw sends prompts as they are." if as_chat else ""
                raise ValueError(
                    f"{arm.label} failed with {len(request_numbers)} at once. {pieces[-1].server_note}{hint}"
                )
            texts.append("".join(piece.text for piece in pieces))
            ended.append(answer.begun + pieces[-1].seconds_since_request)
    finally:
        for answer in answers:
            answer.close()
    told = [count for answer in answers if (count := telling.completion_tokens_of(answer.reported_fields))]
    if len(told) < len(answers):
        raise ValueError(
            f"{arm.label} does not say how many tokens it wrote (usage.completion_tokens), so there is no speed to compare."
        )
    found = telling.sum_guesses_or_none_if_any_unknown(
        telling.plausible_and_clamped_guesses_of(answer.reported_fields) for answer in answers
    )
    doubt = next(filter(None, (telling.describe_implausible_counts(answer.reported_fields) for answer in answers)), "")
    if (
        found is None
        and not doubt
        and before is not None
        and (after := telling.fetch_vllm_guess_totals(arm.server)) is not None
    ):
        found = after.change_since(before)
    return RequestWave(texts, told, max(ended) - min(answer.begun for answer in answers), found, doubt)


def measure_speedup_by_concurrency(
    arms: tuple[ServerArm, ServerArm], prompts: list[str], concurrencies: list[int], settings: Settings, as_chat: bool
) -> list[dict]:
    """The figures of every size. Raises `ValueError` as soon as the comparison makes no sense."""
    points, waves = [], {size: number_requests_by_wave(len(prompts), size) for size in concurrencies}
    scored = (
        settings.temperature > 0
        and log_likelihood_per_token_by_plain_server(arms[0], prompts[0], prompts[0], as_chat) is not None
    )
    if settings.temperature and not scored:
        greedy = replace(settings, temperature=0.0)
        streams = list(range(min(len(prompts), SCORED)))
        plain, mine = (
            [send_concurrent_requests_and_wait(each, streams, prompts, greedy, settings.max_new_tokens, as_chat)]
            for each in arms
        )
        refuse_invalid_comparison(arms, plain, mine, greedy)
    with tqdm(total=sum(2 + 2 * len(each) for each in waves.values()), desc="waves", unit="wave") as bar:
        for size in concurrencies:
            for each in arms:
                send_concurrent_requests_and_wait(
                    each, waves[size][0], prompts, settings, min(WARM_UP_TOKENS, settings.max_new_tokens), as_chat
                )
                bar.update()
            found: dict[bool, list[RequestWave]] = {False: [], True: []}
            for turn, streams in enumerate(waves[size]):
                for each in arms if turn % 2 == 0 else arms[::-1]:
                    found[each.is_speculative].append(
                        send_concurrent_requests_and_wait(
                            each, streams, prompts, settings, settings.max_new_tokens, as_chat
                        )
                    )
                    bar.update()
            refuse_invalid_comparison(arms, found[False], found[True], settings)
            if scored:
                given = [prompts[stream % len(prompts)] for streams in waves[size] for stream in streams]
                refuse_unlikely_texts(arms, given, found[False], found[True], as_chat)
            points.append(compute_figures_at_concurrency(size, found[False], found[True], settings))
    return points


def refuse_invalid_comparison(
    arms: tuple[ServerArm, ServerArm],
    plain_waves: list[RequestWave],
    speculative_waves: list[RequestWave],
    settings: Settings,
) -> None:
    """Raises `ValueError` where plain decoding guessed, where the other arm guessed nothing, and where no text is the same."""
    base, guessing = arms
    if drafted := sum(wave.guess_totals.drafted for wave in plain_waves if wave.guess_totals):
        raise ValueError(
            f"{base.label} drafted {drafted:,} tokens for plain decoding, so there is nothing to compare with. "
            "Start a server without a drafter, and name it by --plain."
        )
    if all(wave.guess_totals is not None and not wave.guess_totals.drafted for wave in speculative_waves):
        raise ValueError(f"{guessing.label} drafted nothing for these prompts. Was it started with a drafter?")
    if not settings.temperature and not any(equal := compare_texts(plain_waves, speculative_waves)):
        raise ValueError(
            f"Of {len(equal)} texts at temperature 0 none is the same with and without guesses. "
            "Do both servers run the same model with the same settings?"
        )


def log_likelihood_per_token_by_plain_server(arm: ServerArm, prompt: str, text: str, as_chat: bool) -> float | None:
    """How likely the plain server finds the text behind the prompt, in nats a token; None where it does not tell.

    A chat's template is not known, so that its prompt stands above the answer as it is: this compares texts of one prompt alone.
    """
    return request_mean_log_probability_of_text(arm.server, prompt + "\n\n" * as_chat, text)


def refuse_unlikely_texts(
    arms: tuple[ServerArm, ServerArm],
    prompts: list[str],
    plain_waves: list[RequestWave],
    speculative_waves: list[RequestWave],
    as_chat: bool,
) -> None:
    """Raises `ValueError` where the plain server finds the guessing arm's texts far less likely. `prompts` are those of all streams."""
    means = []
    for waves in (plain_waves, speculative_waves):
        texts = [text for wave in waves for text in wave.texts]
        both = zip(prompts[:SCORED], texts[:SCORED], strict=True)
        scored = ((prompt, text) for prompt, text in both if text)
        told = [log_likelihood_per_token_by_plain_server(arms[0], *each, as_chat) for each in scored]
        known = [each for each in told if each is not None]
        if not known:
            return
        means.append(sum(known) / len(known))
    if means[1] < means[0] - UNLIKELY:
        raise ValueError(
            f"{arms[1].label} writes other text with its guesses than without: {arms[0].label} finds its own text likely by "
            f"{means[0]:.2f} nats a token and this one by {means[1]:.2f}. Its speed says nothing. Compare at temperature 0."
        )


def compare_texts(plain_waves: list[RequestWave], speculative_waves: list[RequestWave]) -> list[bool]:
    """Whether each text is equal in both arms."""
    return [one == other for one, _, other, _ in pair_texts_and_counts(plain_waves, speculative_waves)]


def pair_texts_and_counts(
    plain_waves: list[RequestWave], speculative_waves: list[RequestWave]
) -> list[tuple[str, int, str, int]]:
    """Each text with its count of tokens in both arms."""
    both = zip(plain_waves, speculative_waves, strict=True)
    found = [zip(one.texts, one.token_counts, other.texts, other.token_counts, strict=True) for one, other in both]
    return [each for wave in found for each in wave]


def recount_tokens_where_arms_disagree(
    plain_waves: list[RequestWave], speculative_waves: list[RequestWave]
) -> tuple[list[RequestWave], list[RequestWave], str]:
    """The waves, counted so that equal texts have equally many tokens, and the arm of `ARMS` that miscounts, "" for none."""
    other = [
        (text, one, more)
        for text, one, also, more in pair_texts_and_counts(plain_waves, speculative_waves)
        if text == also and one != more
    ]
    if not other:
        return plain_waves, speculative_waves, ""
    tokenizer, _ = load_and_check_tokenizer_and_config(PAIRS[YARDSTICK].target_checkpoint)

    def count_tokens(text: str) -> int:
        return max(1, len(tokenizer(text, add_special_tokens=False)["input_ids"]))

    far = [sum(abs(math.log(counts[arm] / count_tokens(text))) for text, *counts in other) for arm in range(len(ARMS))]
    recounted, also = (
        [replace(wave, token_counts=[count_tokens(text) for text in wave.texts]) for wave in waves]
        for waves in (plain_waves, speculative_waves)
    )
    return recounted, also, ARMS[far.index(max(far))]


def compute_figures_at_concurrency(
    concurrency: int, plain_waves: list[RequestWave], speculative_waves: list[RequestWave], settings: Settings
) -> dict:
    """The figures of one size. `identical` is None above temperature 0, where a server's texts need not be equal."""
    plain_waves, speculative_waves, miscounts = recount_tokens_where_arms_disagree(plain_waves, speculative_waves)
    base, own = ([wave.seconds / wave.total_tokens for wave in waves] for waves in (plain_waves, speculative_waves))
    speedups, equal = compute_speedups_by_prompt(base, own), compare_texts(plain_waves, speculative_waves)
    indices = draw_bootstrap_indices(len(speedups), settings.seed)
    found = {
        "speedup": geometric_mean(speedups),
        "interval": bootstrap_interval_of_geometric_mean(speedups, indices),
    }
    total = telling.sum_guesses_or_none_if_any_unknown(wave.guess_totals for wave in speculative_waves)
    return {
        "batch": concurrency,
        "waves": len(speculative_waves),
        "plain_tokens_per_s": 1 / geometric_mean(base),
        "tokens_per_s": 1 / geometric_mean(own),
        **found,
        "answer": judge_yes_no_or_only(found),
        "gaining": sum(speedup > 1 for speedup in speedups),
        "tau": 1 + total.accepted / total.passes if total and total.passes else None,
        "acceptance": total.accepted / total.drafted if total and total.drafted else None,
        "texts": len(equal),
        "identical": None if settings.temperature else sum(equal),
        "miscounts": miscounts,
        "doubt": next(filter(None, (wave.implausible_guesses_reason for wave in speculative_waves)), ""),
    }


def build_shareable_server_row(
    arms: tuple[ServerArm, ServerArm],
    machine_description: str | None,
    prompt_count: int,
    settings: Settings,
    as_chat: bool,
    points: list[dict],
) -> dict:
    """What can be shared: no address, no path of a disk, no prompt and no text. `machine_description` is what a person says of it."""
    plain, guessing = (
        vars(each.facts) | {"model": telling.hide_directories_if_path(each.facts.model)} for each in arms
    )
    near = all(telling.has_loopback_address(each.server) for each in arms)  # else this machine cannot know
    return {
        "row": VERSION,
        "machine": machine_description or (hardware_name(validate_or_choose_device(None)) if near else "not told"),
        **guessing,
        "plain": plain | {"same_server": arms[0].server == arms[1].server},
        "temperature": settings.temperature,
        "tokens": settings.max_new_tokens,
        "seed": settings.seed,
        "chat": as_chat,
        "prompts": prompt_count,
        "confidence": CONFIDENCE,
        "points": points,
    }
