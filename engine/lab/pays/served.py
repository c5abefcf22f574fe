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
    bootstrap_interval_of_mean,
    divide_seconds_by_prompt,
    draw_resamples,
    geometric_mean,
    judge_yes_no_or_only,
)
from engine.models.loading import hardware_name, load_tokenizer_and_config, validate_device
from engine.models.pairs import PAIRS
from engine.race import Settings
from engine.record.trace import FAILED
from engine.remote import telling
from engine.remote.scoring import mean_log_likelihood
from engine.remote.server import AnswerStream, Server
from engine.remote.telling import GuessTotals, ServerFacts

SIZES = "1,4,16"
SCORED = 8  # texts of each arm, at each size
UNLIKELY = 1.0  # nats a token: between arms of one law a few short texts differ by a third of it
ARMS, VERSION = ("plain", "guessing"), 1  # of a row
YARDSTICK = "small"  # the pair whose tokenizer counts where two servers disagree


@dataclass(frozen=True)
class ServerArm:
    """One side of a comparison: a server, and the fields `asked` that go into every request beside the text and its length."""

    server: Server
    about: ServerFacts
    asked: dict[str, Any]
    guessing: bool

    @property
    def label(self) -> str:
        """The engine and its host and port: both arms may serve a model of one name."""
        return f"{self.about.engine or 'The server'} at {Server(self.server.address).label}"


@dataclass(frozen=True)
class RequestWave:
    """The answers to requests that were sent at the same time.

    `guesses` is None where the server tells nothing of them, or what cannot be, which `doubt` says then.
    """

    texts: list[str]
    counts: list[int]
    seconds: float
    guesses: GuessTotals | None
    doubt: str = ""

    @property
    def tokens(self) -> int:
        return sum(self.counts)


def build_arm(address: str, model: str, guessing: bool) -> ServerArm:
    about = telling.identify_server(server := Server(telling.add_scheme_and_path_to_address(address), model))
    asked = {"stream_options": {"include_usage": True}} | telling.ASKED.get(about.engine, {})
    return ServerArm(Server(server.address, about.model), about, asked, guessing)


def build_server_arms(address: str, plain: str | None, model: str) -> tuple[ServerArm, ServerArm]:
    """Plain decoding's arm and the guessing one. Raises `ValueError` where there is no way to have both."""
    guessing = build_arm(address, model, True)
    if plain is None:
        if (switch := telling.settings_without_guesses(guessing.about)) is None:
            raise ValueError(
                f"{guessing.label} cannot leave out its guesses for one request; only a llama-server that tells {telling.N_MAX} can. "
                "Start it a second time without a drafter, and name that one by --plain."
            )
        return replace(guessing, asked=guessing.asked | switch, guessing=False), guessing
    if telling.add_scheme_and_path_to_address(plain).rstrip("/") == guessing.server.address.rstrip("/"):
        label = Server(guessing.server.address, model).label
        raise ValueError(f"--server and --plain are the same address, {label}. Name two servers.")
    return build_arm(plain, model, False), guessing


def split_prompts_into_waves(prompts: int, concurrency: int) -> list[list[int]]:
    """The waves' streams, by number. The prompt of a stream is its number modulo the prompts; enough waves for an interval."""
    return [
        list(range(at * concurrency, (at + 1) * concurrency))
        for at in range(max(FEWEST, math.ceil(prompts / concurrency)))
    ]


def send_wave(
    arm: ServerArm, streams: list[int], prompts: list[str], settings: Settings, tokens: int, chat: bool
) -> RequestWave:
    """One wave. Raises `ValueError` with the server's own sentence where an answer fails, and where its tokens are not told."""
    answers = []
    for stream in streams:
        again, at = divmod(stream, len(prompts))
        how = {"max_tokens": tokens, "temperature": settings.temperature, "seed": settings.seed + again}
        answers.append(AnswerStream(arm.server, prompts[at], how | arm.asked, chat, whole=True))
    before = telling.read_vllm_counters(arm.server) if arm.about.engine == "vLLM" else None
    texts, ended = [], []
    try:
        for answer in answers:
            answer.send_request()
        for answer in answers:
            pieces = answer.wait_for_pieces()
            if pieces[-1].end == FAILED:
                hint = " Where its model has no chat template, --raw sends prompts as they are." if chat else ""
                raise ValueError(f"{arm.label} failed with {len(streams)} at once. {pieces[-1].note}{hint}")
            texts.append("".join(piece.text for piece in pieces))
            ended.append(answer.begun + pieces[-1].at)
    finally:
        for answer in answers:
            answer.close()
    told = [count for answer in answers if (count := telling.completion_tokens_of(answer.told))]
    if len(told) < len(answers):
        raise ValueError(
            f"{arm.label} does not say how many tokens it wrote (usage.completion_tokens), so there is no speed to compare."
        )
    found = telling.sum_guesses(telling.validated_guesses_of(answer.told) for answer in answers)
    doubt = next(filter(None, (telling.describe_implausible_counts(answer.told) for answer in answers)), "")
    if (
        found is None
        and not doubt
        and before is not None
        and (after := telling.read_vllm_counters(arm.server)) is not None
    ):
        found = after.change_since(before)
    return RequestWave(texts, told, max(ended) - min(answer.begun for answer in answers), found, doubt)


def measure_wave_sizes(
    arms: tuple[ServerArm, ServerArm], prompts: list[str], sizes: list[int], settings: Settings, chat: bool
) -> list[dict]:
    """The figures of every size. Raises `ValueError` as soon as the comparison makes no sense."""
    points, waves = [], {size: split_prompts_into_waves(len(prompts), size) for size in sizes}
    scored = settings.temperature > 0 and measure_likelihood(arms[0], prompts[0], prompts[0], chat) is not None
    if settings.temperature and not scored:
        greedy = replace(settings, temperature=0.0)
        streams = list(range(min(len(prompts), SCORED)))
        plain, mine = ([send_wave(each, streams, prompts, greedy, settings.max_new_tokens, chat)] for each in arms)
        refuse_invalid_comparison(arms, plain, mine, greedy)
    with tqdm(total=sum(2 + 2 * len(each) for each in waves.values()), desc="waves", unit="wave") as bar:
        for size in sizes:
            for each in arms:
                send_wave(each, waves[size][0], prompts, settings, min(WARM_UP_TOKENS, settings.max_new_tokens), chat)
                bar.update()
            found: dict[bool, list[RequestWave]] = {False: [], True: []}
            for turn, streams in enumerate(waves[size]):
                for each in arms if turn % 2 == 0 else arms[::-1]:
                    found[each.guessing].append(
                        send_wave(each, streams, prompts, settings, settings.max_new_tokens, chat)
                    )
                    bar.update()
            refuse_invalid_comparison(arms, found[False], found[True], settings)
            if scored:
                given = [prompts[stream % len(prompts)] for streams in waves[size] for stream in streams]
                refuse_unlikely_texts(arms, given, found[False], found[True], chat)
            points.append(build_wave_point(size, found[False], found[True], settings))
    return points


def refuse_invalid_comparison(
    arms: tuple[ServerArm, ServerArm], plain: list[RequestWave], guessed: list[RequestWave], settings: Settings
) -> None:
    """Raises `ValueError` where plain decoding guessed, where the other arm guessed nothing, and where no text is the same."""
    base, guessing = arms
    if drafted := sum(wave.guesses.drafted for wave in plain if wave.guesses):
        raise ValueError(
            f"{base.label} drafted {drafted:,} tokens for plain decoding, so there is nothing to compare with. "
            "Start a server without a drafter, and name it by --plain."
        )
    if all(wave.guesses is not None and not wave.guesses.drafted for wave in guessed):
        raise ValueError(f"{guessing.label} drafted nothing for these prompts. Was it started with a drafter?")
    if not settings.temperature and not any(equal := compare_texts(plain, guessed)):
        raise ValueError(
            f"Of {len(equal)} texts at temperature 0 none is the same with and without guesses. "
            "Do both servers run the same model with the same settings?"
        )


def measure_likelihood(plain: ServerArm, prompt: str, text: str, chat: bool) -> float | None:
    """How likely the plain server finds the text behind the prompt, in nats a token; None where it does not tell.

    A chat's template is not known, so that its prompt stands above the answer as it is: this compares texts of one prompt alone.
    """
    return mean_log_likelihood(plain.server, prompt + "\n\n" * chat, text)


def refuse_unlikely_texts(
    arms: tuple[ServerArm, ServerArm],
    prompts: list[str],
    plain: list[RequestWave],
    guessed: list[RequestWave],
    chat: bool,
) -> None:
    """Raises `ValueError` where the plain server finds the guessing arm's texts far less likely. `prompts` are those of all streams."""
    means = []
    for waves in (plain, guessed):
        texts = [text for wave in waves for text in wave.texts]
        both = zip(prompts[:SCORED], texts[:SCORED], strict=True)
        told = [measure_likelihood(arms[0], prompt, text, chat) for prompt, text in both if text]
        known = [each for each in told if each is not None]
        if not known:
            return
        means.append(sum(known) / len(known))
    if means[1] < means[0] - UNLIKELY:
        raise ValueError(
            f"{arms[1].label} writes other text with its guesses than without: {arms[0].label} finds its own text likely by "
            f"{means[0]:.2f} nats a token and this one by {means[1]:.2f}. Its speed says nothing. Compare at temperature 0."
        )


def compare_texts(plain: list[RequestWave], guessed: list[RequestWave]) -> list[bool]:
    """Whether each text is equal in both arms."""
    return [one == other for one, _, other, _ in pair_texts_and_counts(plain, guessed)]


def pair_texts_and_counts(plain: list[RequestWave], guessed: list[RequestWave]) -> list[tuple[str, int, str, int]]:
    """Each text with its count of tokens in both arms."""
    both = zip(plain, guessed, strict=True)
    found = [zip(one.texts, one.counts, other.texts, other.counts, strict=True) for one, other in both]
    return [each for wave in found for each in wave]


def align_wave_counts(
    plain: list[RequestWave], guessed: list[RequestWave]
) -> tuple[list[RequestWave], list[RequestWave], str]:
    """The waves, counted so that equal texts have equally many tokens, and the arm of `ARMS` that miscounts, "" for none."""
    other = [
        (text, one, more)
        for text, one, also, more in pair_texts_and_counts(plain, guessed)
        if text == also and one != more
    ]
    if not other:
        return plain, guessed, ""
    tokenizer, _ = load_tokenizer_and_config(PAIRS[YARDSTICK].target_checkpoint)

    def own(text: str) -> int:
        return max(1, len(tokenizer(text, add_special_tokens=False)["input_ids"]))

    far = [sum(abs(math.log(counts[arm] / own(text))) for text, *counts in other) for arm in range(len(ARMS))]
    recounted, also = (
        [replace(wave, counts=[own(text) for text in wave.texts]) for wave in waves] for waves in (plain, guessed)
    )
    return recounted, also, ARMS[far.index(max(far))]


def build_wave_point(size: int, plain: list[RequestWave], guessed: list[RequestWave], settings: Settings) -> dict:
    """The figures of one size. `identical` is None above temperature 0, where a server's texts need not be equal."""
    plain, guessed, miscounts = align_wave_counts(plain, guessed)
    base, own = ([wave.seconds / wave.tokens for wave in waves] for waves in (plain, guessed))
    speedups, equal = divide_seconds_by_prompt(base, own), compare_texts(plain, guessed)
    found = {
        "speedup": geometric_mean(speedups),
        "interval": bootstrap_interval_of_mean(speedups, draw_resamples(len(speedups), settings.seed)),
    }
    total = telling.sum_guesses(wave.guesses for wave in guessed)
    return {
        "batch": size,
        "waves": len(guessed),
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
        "doubt": next(filter(None, (wave.doubt for wave in guessed)), ""),
    }


def build_server_row(
    arms: tuple[ServerArm, ServerArm],
    machine: str | None,
    prompts: int,
    settings: Settings,
    chat: bool,
    points: list[dict],
) -> dict:
    """What can be shared: no address, no path of a disk, no prompt and no text. `machine` is what a person says of it."""
    plain, guessing = (vars(each.about) | {"model": telling.keep_last_path_segment(each.about.model)} for each in arms)
    near = all(telling.is_this_machine(each.server) for each in arms)  # else this machine cannot know
    return {
        "row": VERSION,
        "machine": machine or (hardware_name(validate_device(None)) if near else "not told"),
        **guessing,
        "plain": plain | {"same_server": arms[0].server == arms[1].server},
        "temperature": settings.temperature,
        "tokens": settings.max_new_tokens,
        "seed": settings.seed,
        "chat": chat,
        "prompts": prompts,
        "confidence": CONFIDENCE,
        "points": points,
    }
