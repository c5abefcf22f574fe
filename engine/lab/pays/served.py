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

from engine.lab.pays.batch import WARM_UP_TOKENS
from engine.measure.prompts import FEWEST
from engine.measure.verdict import (
    CONFIDENCE,
    compute_ratios,
    confidence_interval,
    draw_resamples,
    geometric_mean,
    judge_system,
)
from engine.models.loading import hardware_name, load_tokenizer_and_config, validate_device
from engine.models.pairs import PAIRS
from engine.race import Settings
from engine.record.trace import FAILED
from engine.remote import telling
from engine.remote.scoring import mean_log_likelihood
from engine.remote.server import Answer, Server
from engine.remote.telling import Guesses, ServerFacts

SIZES = "1,4,16"
SCORED = 8  # texts of each arm, at each size
UNLIKELY = 1.0  # nats a token: between arms of one law a few short texts differ by a third of it
ARMS, VERSION = ("plain", "guessing"), 1  # of a row
YARDSTICK = "small"  # the pair whose tokenizer counts where two servers disagree


@dataclass(frozen=True)
class Arm:
    """A server. The fields `asked` go into every request beside the text and its length."""

    server: Server
    about: ServerFacts
    asked: dict[str, Any]
    guessing: bool

    @property
    def label(self) -> str:
        """The engine and its host and port: both arms may serve a model of one name."""
        return f"{self.about.engine or 'The server'} at {Server(self.server.address).label}"


@dataclass(frozen=True)
class Wave:
    """The answers to streams that were sent at once: texts, and the tokens of each.

    `guesses` is None where the server tells nothing of them, or what cannot be, which `doubt` says then.
    """

    texts: list[str]
    counts: list[int]
    seconds: float
    guesses: Guesses | None
    doubt: str = ""

    @property
    def tokens(self) -> int:
        return sum(self.counts)


def build_arm(address: str, model: str, guessing: bool) -> Arm:
    about = telling.identify_server(server := Server(telling.complete_address(address), model))
    asked = {"stream_options": {"include_usage": True}} | telling.ASKED.get(about.engine, {})
    return Arm(Server(server.address, about.model), about, asked, guessing)


def arms_of(address: str, plain: str | None, model: str) -> tuple[Arm, Arm]:
    """Plain decoding's arm and the guessing one. Raises `ValueError` where there is no way to have both."""
    guessing = build_arm(address, model, True)
    if plain is None:
        if (switch := telling.settings_without_guesses(guessing.about)) is None:
            raise ValueError(
                f"{guessing.label} cannot leave out its guesses for one request; only a llama-server that tells {telling.N_MAX} can. "
                "Start it a second time without a drafter, and name that one by --plain."
            )
        return replace(guessing, asked=guessing.asked | switch, guessing=False), guessing
    if telling.complete_address(plain).rstrip("/") == guessing.server.address.rstrip("/"):
        label = Server(guessing.server.address, model).label
        raise ValueError(f"--server and --plain are the same address, {label}. Name two servers.")
    return build_arm(plain, model, False), guessing


def waves_of(prompts: int, size: int) -> list[list[int]]:
    """The waves' streams, by number. The prompt of a stream is its number modulo the prompts; enough waves for an interval."""
    return [list(range(at * size, (at + 1) * size)) for at in range(max(FEWEST, math.ceil(prompts / size)))]


def send_wave(arm: Arm, streams: list[int], prompts: list[str], asked: Settings, tokens: int, chat: bool) -> Wave:
    """One wave. Raises `ValueError` with the server's own sentence where an answer fails, and where its tokens are not told."""
    answers = []
    for stream in streams:
        again, at = divmod(stream, len(prompts))
        how = {"max_tokens": tokens, "temperature": asked.temperature, "seed": asked.seed + again}
        answers.append(Answer(arm.server, prompts[at], how | arm.asked, chat, whole=True))
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
    told = [count for answer in answers if (count := telling.tokens_of(answer.told))]
    if len(told) < len(answers):
        raise ValueError(
            f"{arm.label} does not say how many tokens it wrote (usage.completion_tokens), so there is no speed to compare."
        )
    found = telling.sum_guesses(telling.guesses_of(answer.told) for answer in answers)
    doubt = next(filter(None, (telling.doubt_of(answer.told) for answer in answers)), "")
    if (
        found is None
        and not doubt
        and before is not None
        and (after := telling.read_vllm_counters(arm.server)) is not None
    ):
        found = after.change_since(before)
    return Wave(texts, told, max(ended) - min(answer.begun for answer in answers), found, doubt)


def measure_sizes(
    arms: tuple[Arm, Arm], prompts: list[str], sizes: list[int], asked: Settings, chat: bool
) -> list[dict]:
    """The figures of every size. Raises `ValueError` as soon as the comparison makes no sense."""
    points, waves = [], {size: waves_of(len(prompts), size) for size in sizes}
    scored = asked.temperature > 0 and measure_likelihood(arms[0], prompts[0], prompts[0], chat) is not None
    if asked.temperature and not scored:
        greedy = replace(asked, temperature=0.0)
        streams = list(range(min(len(prompts), SCORED)))
        plain, mine = ([send_wave(each, streams, prompts, greedy, asked.max_new_tokens, chat)] for each in arms)
        refuse_senseless(arms, plain, mine, greedy)
    with tqdm(total=sum(2 + 2 * len(each) for each in waves.values()), desc="waves", unit="wave") as bar:
        for size in sizes:
            for each in arms:
                send_wave(each, waves[size][0], prompts, asked, min(WARM_UP_TOKENS, asked.max_new_tokens), chat)
                bar.update()
            found: dict[bool, list[Wave]] = {False: [], True: []}
            for turn, streams in enumerate(waves[size]):
                for each in arms if turn % 2 == 0 else arms[::-1]:
                    found[each.guessing].append(send_wave(each, streams, prompts, asked, asked.max_new_tokens, chat))
                    bar.update()
            refuse_senseless(arms, found[False], found[True], asked)
            if scored:
                given = [prompts[stream % len(prompts)] for streams in waves[size] for stream in streams]
                refuse_unlikely(arms, given, found[False], found[True], chat)
            points.append(build_point(size, found[False], found[True], asked))
    return points


def refuse_senseless(arms: tuple[Arm, Arm], plain: list[Wave], mine: list[Wave], asked: Settings) -> None:
    """Raises `ValueError` where plain decoding guessed, where the other arm guessed nothing, and where no text is the same."""
    base, guessing = arms
    if drafted := sum(wave.guesses.drafted for wave in plain if wave.guesses):
        raise ValueError(
            f"{base.label} drafted {drafted:,} tokens for plain decoding, so there is nothing to compare with. "
            "Start a server without a drafter, and name it by --plain."
        )
    if all(wave.guesses is not None and not wave.guesses.drafted for wave in mine):
        raise ValueError(f"{guessing.label} drafted nothing for these prompts. Was it started with a drafter?")
    if not asked.temperature and not any(equal := compare_texts(plain, mine)):
        raise ValueError(
            f"Of {len(equal)} texts at temperature 0 none is the same with and without guesses. "
            "Do both servers run the same model with the same settings?"
        )


def measure_likelihood(plain: Arm, prompt: str, text: str, chat: bool) -> float | None:
    """How likely the plain server finds the text behind the prompt, in nats a token; None where it does not tell.

    A chat's template is not known, so that its prompt stands above the answer as it is: this compares texts of one prompt alone.
    """
    return mean_log_likelihood(plain.server, prompt + "\n\n" * chat, text)


def refuse_unlikely(arms: tuple[Arm, Arm], prompts: list[str], plain: list[Wave], mine: list[Wave], chat: bool) -> None:
    """Raises `ValueError` where the plain server finds the guessing arm's texts far less likely. `prompts` are those of all streams."""
    means = []
    for waves in (plain, mine):
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


def compare_texts(plain: list[Wave], mine: list[Wave]) -> list[bool]:
    """Whether each text is equal in both arms."""
    return [one == other for one, _, other, _ in pair_texts(plain, mine)]


def pair_texts(plain: list[Wave], mine: list[Wave]) -> list[tuple[str, int, str, int]]:
    """Each text with its count of tokens in both arms."""
    both = zip(plain, mine, strict=True)
    found = [zip(one.texts, one.counts, other.texts, other.counts, strict=True) for one, other in both]
    return [each for wave in found for each in wave]


def align_wave_counts(plain: list[Wave], mine: list[Wave]) -> tuple[list[Wave], list[Wave], str]:
    """The waves, counted so that equal texts have equally many tokens, and the arm of `ARMS` that miscounts, "" for none."""
    other = [(text, one, more) for text, one, also, more in pair_texts(plain, mine) if text == also and one != more]
    if not other:
        return plain, mine, ""
    tokenizer, _ = load_tokenizer_and_config(PAIRS[YARDSTICK].target_checkpoint)

    def own(text: str) -> int:
        return max(1, len(tokenizer(text, add_special_tokens=False)["input_ids"]))

    far = [sum(abs(math.log(counts[arm] / own(text))) for text, *counts in other) for arm in range(len(ARMS))]
    recounted, also = (
        [replace(wave, counts=[own(text) for text in wave.texts]) for wave in waves] for waves in (plain, mine)
    )
    return recounted, also, ARMS[far.index(max(far))]


def build_point(size: int, plain: list[Wave], mine: list[Wave], asked: Settings) -> dict:
    """The figures of one size. `identical` is None above temperature 0, where a server's texts need not be equal."""
    plain, mine, miscounts = align_wave_counts(plain, mine)
    base, own = ([wave.seconds / wave.tokens for wave in waves] for waves in (plain, mine))
    speedups, equal = compute_ratios(base, own), compare_texts(plain, mine)
    found = {
        "speedup": geometric_mean(speedups),
        "interval": confidence_interval(speedups, draw_resamples(len(speedups), asked.seed)),
    }
    total = telling.sum_guesses(wave.guesses for wave in mine)
    return {
        "batch": size,
        "waves": len(mine),
        "plain_tokens_per_s": 1 / geometric_mean(base),
        "tokens_per_s": 1 / geometric_mean(own),
        **found,
        "answer": judge_system(found),
        "gaining": sum(speedup > 1 for speedup in speedups),
        "tau": 1 + total.accepted / total.passes if total and total.passes else None,
        "acceptance": total.accepted / total.drafted if total and total.drafted else None,
        "texts": len(equal),
        "identical": None if asked.temperature else sum(equal),
        "miscounts": miscounts,
        "doubt": next(filter(None, (wave.doubt for wave in mine)), ""),
    }


def build_row(
    arms: tuple[Arm, Arm], machine: str | None, prompts: int, asked: Settings, chat: bool, points: list[dict]
) -> dict:
    """What can be shared: no address, no path of a disk, no prompt and no text. `machine` is what a person says of it."""
    plain, guessing = (vars(each.about) | {"model": telling.strip_path(each.about.model)} for each in arms)
    near = all(telling.is_this_machine(each.server) for each in arms)  # else this machine cannot know
    return {
        "row": VERSION,
        "machine": machine or (hardware_name(validate_device(None)) if near else "not told"),
        **guessing,
        "plain": plain | {"same_server": arms[0].server == arms[1].server},
        "temperature": asked.temperature,
        "tokens": asked.max_new_tokens,
        "seed": asked.seed,
        "chat": chat,
        "prompts": prompts,
        "confidence": CONFIDENCE,
        "points": points,
    }
