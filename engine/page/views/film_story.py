"""The story of one step, in frames: levels come, a sweep checks all, the target chooses, wrong guesses go, the burst joins."""

from collections.abc import Iterator

from PIL import Image

from engine.page.views.film_frame import INK, Moment, drawn
from engine.page.views.layout import layout
from engine.record.race_file import Record
from engine.record.trace import Step

LEVEL, SCENE = 4, 9  # frames in which a level of the tree is new, and of each later scene
PROMISES = {  # what a system's guarantee means for the text
    "tokens": "Nothing changes in the text: it only comes sooner.",
    "law": "The text stays just as likely as before: it only comes sooner.",
    "lossy": "This system is lossy: its text may be another one.",
}


def story(record: Record, scale: float) -> Iterator[Image.Image]:
    """The first step of the right lane with a right guess, scene by scene; nothing where there is none."""
    lane = record.lanes[1]
    at = next((at for at, step in enumerate(lane.trace.steps) if step.path), None)
    if at is None:
        return
    step = lane.trace.steps[at]
    before, behind = [0.0, *lane.trace.clocks][at : at + 2]
    nodes, depths = len(step.parents), layout(step.parents)[0]
    deepest, kept = max(depths), {0, *step.path}

    def scene(words: str, moment: Moment) -> Image.Image:
        return drawn(record, behind if moment.joined else before, scale, (words, INK), [step], moment)

    shoots = max(1, min(deepest, step.draft_forwards))  # each draft forward lets levels come, as in the page's story
    for shoot in range(1, shoots + 1):
        grown = ["guess" if (depth - 1) * shoots // deepest < shoot else "hidden" for depth in depths]
        yield from [scene(guess_words(step, shoots), Moment([*grown, "hidden"]))] * LEVEL
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
    yield from [scene(drop_words(nodes - len(kept)), Moment(left, nodes, judged=True))] * SCENE
    same = PROMISES.get(lane.guarantee, PROMISES["tokens"])
    joined = "One token joins the text" if len(step.burst) == 1 else f"{len(step.burst)} tokens join the text at once"
    for words in (f"{joined}.", same):
        yield from [scene(words, Moment(left, nodes, judged=True, joined=True))] * SCENE


def guess_words(step: Step, shoots: int) -> str:
    if not step.draft_forwards:
        return "What may come next is guessed, without running a model."
    return "A small model guesses ahead, in one go." if shoots == 1 else "A small model guesses ahead."


def checked(guesses: int) -> str:
    return "the guess" if guesses == 1 else f"all {guesses} guesses at once,"


def drop_words(wrong: int) -> str:
    if not wrong:
        return "Every guess is right: nothing is thrown away."
    return "The wrong guess is thrown away." if wrong == 1 else "Wrong guesses are thrown away."
