"""A race as an animated GIF: the story of one step, both lanes on their clocks, the verdict. Knows a Record; draws with Pillow."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from PIL import Image

from engine.page.views.film_frame import HUES, INK, SIZE, Moment, Shot, drawn, shot, shown
from engine.page.views.layout import layout
from engine.record.headline import is_level
from engine.record.race_file import LaneRecord, Record, side_by_side
from engine.record.trace import Step

FRAMES_A_SECOND, HELD_SECONDS = 10, 2.0
WIDTHS, SECONDS = (480, 1920), (1, 60)
LEVEL, SCENE = 4, 9  # frames in which a level of the tree is new, and of each later scene
PROMISES = {  # what a system's guarantee means for the text
    "tokens": "Nothing changes in the text: it only comes sooner.",
    "law": "The text stays just as likely as before: it only comes sooner.",
    "lossy": "This system is lossy: its text may be another one.",
}


def frames(record: Record, width: int = SIZE[0], seconds: float = 8.0) -> Iterator[Image.Image]:
    """One step's story, then the race in `seconds`; the last frame has the verdict and the story's step.

    A race of three lanes is shown without the one in the middle. Raises `ValueError` for a size out of bounds.
    """
    lanes = side_by_side(record)
    record = replace(record, lanes=lanes, runs=[[run[0], run[-1]] for run in record.runs])
    for name, value, (least, most) in (("width", width, WIDTHS), ("seconds", seconds, SECONDS)):
        if not least <= value <= most:
            raise ValueError(f"{name} must be between {least} and {most}, got {value}.")
    yield from story(record, width / SIZE[0])
    longest = max(lane.trace.seconds for lane in lanes)
    count = max(2, round(seconds * FRAMES_A_SECOND))
    for at in range(count):
        time = longest * at / (count - 1)
        shots = [shot(lane, time) for lane in lanes]
        words = verdict(record) if at == count - 1 else lead(shots)
        [step] = shots[1].steps[-1:] or lanes[1].trace.steps[:1]
        if at == count - 1 and (told := told_step(lanes[1])) is not None:
            step = lanes[1].trace.steps[told]
        yield drawn(record, time, width / SIZE[0], words, step)


def lead(shots: list[Shot]) -> tuple[str, str]:
    """Who has written more tokens a second so far. While both lanes write, that is who has more tokens."""
    if min(each.tokens for each in shots) < 3:
        return "", INK
    left, right = (each.tokens / each.clock for each in shots)
    ahead = int(right >= left)
    ratio = max(left, right) / min(left, right)
    return ("level", INK) if is_level(ratio) else (f"{ratio:.1f}x ahead: {shots[ahead].lane.title}", HUES[ahead][1])


def verdict(record: Record) -> tuple[str, str]:
    result = record.result()
    speedup, same = result["speedup"], result["identical"]
    if same == "failed":
        return "the other server failed: nothing to compare", INK
    ratio = speedup if speedup >= 1 else 1 / speedup
    outcome = "level" if is_level(ratio) else f"{ratio:.1f}x {'faster' if speedup >= 1 else 'slower'}"
    left, right = (lane["tokens"] for lane in result["lanes"])
    words = {
        True: f"identical: {right} of {left} tokens",
        "law": "same distribution, other tokens",
        "lossy": "lossy: another text",
        "text": "the same text, compared by text",
        "other text": "another text, compared by text",
        False: "not identical",
    }[same]
    runs = len(result["runs"])
    spread = f" ({result['least']:.1f} to {result['most']:.1f} in {runs} runs)" if runs > 1 else ""
    stopped = "" if result["finished"] else ", stopped"
    disturbed = ", disturbed" if result["disturbed"] else ""
    return f"{outcome}{spread}, {words}{stopped}{disturbed}", HUES[int(speedup >= 1)][1]


def save(record: Record, path: Path, width: int = SIZE[0], seconds: float = 8.0) -> None:
    """Writes the GIF. One palette and no dithering keep flat colours flat, and what did not change then takes no bytes."""
    pictures = list(frames(record, width, seconds))
    palette = pictures[-1].quantize(48)
    first, *others = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
    held = [1000 // FRAMES_A_SECOND] * len(others) + [int(1000 * HELD_SECONDS)]
    first.save(path, save_all=True, append_images=others, duration=held, loop=0, optimize=True)


# ---- the story of one step


def story(record: Record, scale: float) -> Iterator[Image.Image]:
    """`told_step` of the right lane: levels come, all are checked, the target chooses, others go, the burst joins."""
    lane = record.lanes[1]
    at = told_step(lane)
    if at is None:
        return
    step = lane.trace.steps[at]
    before, behind = [0.0, *lane.trace.clocks][at : at + 2]
    nodes, depths = len(step.parents), layout(step.parents)[0]
    deepest, kept = max(depths), {0, *step.path}

    def scene(words: str, moment: Moment) -> Image.Image:
        return drawn(record, behind if moment.joined else before, scale, (words, INK), step, moment)

    shoots = max(1, min(deepest, step.draft_forwards))  # each draft forward lets levels come, as in the page's story
    words = "A small model guesses ahead, in one go." if shoots == 1 else "A small model guesses ahead."
    if not step.draft_forwards:
        words = "What may come next is guessed, without running a model."
    for shoot in range(1, shoots + 1):
        grown = ["guess" if (depth - 1) * shoots // deepest < shoot else "hidden" for depth in depths]
        yield from [scene(words, Moment([*grown, "hidden"]))] * LEVEL
    guessed = ["guess"] * nodes + ["hidden"]
    for frame in range(SCENE):
        sweep = min(1.0, frame / (SCENE - 3))
        passed = sum(depth <= sweep * deepest for depth in depths)
        moment = Moment(guessed, passed, sweep=sweep if frame < SCENE - 2 else None)
        yield scene(f"The large model checks {checked(nodes - 1)} in one run.", moment)
    chosen = ["chosen" if node in step.path else "guess" for node in range(nodes)]
    adds = ", and adds one" if step.has_bonus else ""
    words = f"It marks the words it would have written itself{adds}."
    yield from [scene(words, Moment([*chosen, "ghost"], nodes))] * SCENE
    left = [*("kept" if node in kept else "lost" for node in range(nodes)), "kept"]
    dropped = {0: "Every guess is right: nothing is thrown away.", 1: "The wrong guess is thrown away."}
    words = rescue_words(step) or dropped.get(nodes - len(kept), "Wrong guesses are thrown away.")
    yield from [scene(words, Moment(left, nodes, judged=True))] * SCENE
    joined = "One token joins the text" if len(step.burst) == 1 else f"{len(step.burst)} tokens join the text at once"
    for words in (f"{joined}.", PROMISES[lane.guarantee]):
        yield from [scene(words, Moment(left, nodes, judged=True, joined=True))] * SCENE


def told_step(lane: LaneRecord) -> int | None:
    """The step in which branches won most, without one the first step with a right guess; None without that."""
    if (rescue := lane.trace.rescue) is not None:
        return rescue
    return next((at for at, step in enumerate(lane.trace.steps) if step.path), None)


def rescue_words(step: Step) -> str:
    """What the favourites alone would have kept, and which branch kept more; "" where none did."""
    if not step.branch_tokens:
        return ""
    kept = step.favourites_kept
    return f"Favourite {shown(step.texts[step.favourites[kept]])!r} was wrong: a chain keeps {kept}, this branch {len(step.path)}."


def checked(guesses: int) -> str:
    return "the guess" if guesses == 1 else f"all {guesses} guesses at once,"
