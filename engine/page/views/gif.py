"""A race as an animated GIF: the story of one step, both lanes on their clocks, the verdict. Knows a Record; draws with Pillow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from engine.page.views.layout import layout
from engine.page.views.sentence import VISIBLE
from engine.record.race_file import BY_TEXT, LaneRecord, Record, side_by_side
from engine.record.trace import ACCEPTED, REJECTED, ROOT, UNREACHED, Step

FRAMES_A_SECOND, HELD_SECONDS = 10, 2.0
WIDTHS, SECONDS = (480, 1920), (1, 60)
PAPER, CARD, INK, FAINT, RULE, CELL = "#f4f3ee", "#ffffff", "#1b1c1e", "#5b5c5e", "#d9d8d1", "#eeede7"
HUES = (("#0072b2", "#005f96", "#dcebf4"), ("#d55e00", "#a84300", "#f9e6c4"))  # by lane: line, letters, wash
SIZE = (960, 600)  # all places and sizes below are in pixels of a frame this large
TREE_TOP = 330
LEVEL, SCENE = 4, 9  # frames in which a level of the story's tree is new, and of each later scene
PROMISES = {  # what a system's guarantee means for the text
    "tokens": "Nothing changes in the text: it only comes sooner.",
    "law": "The text stays just as likely as before: it only comes sooner.",
    "lossy": "This system is lossy: its text may be another one.",
}


@dataclass(frozen=True)
class Shot:
    """What a lane has done by a point in time."""

    lane: LaneRecord
    steps: list[Step]
    clock: float

    @property
    def tokens(self) -> int:
        return sum(len(step.burst) for step in self.steps)


class Brush:
    """A frame to draw on. Places are in pixels of `SIZE`; the picture is `scale` times as large."""

    def __init__(self, scale: float):
        self.scale = scale
        self.image = Image.new("RGB", (round(SIZE[0] * scale), round(SIZE[1] * scale)), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def font(self, size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
        return ImageFont.load_default(size * self.scale)

    def at(self, *places: float) -> list[float]:
        return [place * self.scale for place in places]

    def box(self, left, top, right, bottom, fill, outline=None, radius=0.0) -> None:
        box = [round(place) for place in self.at(left, top, right, bottom)]
        self.draw.rounded_rectangle(box, radius * self.scale, fill, outline)

    def line(self, places: list[float], fill, width: float) -> None:
        self.draw.line(self.at(*places), fill, max(1, round(width * self.scale)), joint="curve")

    def text(self, x, y, words, size, fill, anchor="ls") -> float:
        """Draws the words and returns their width."""
        font = self.font(size)
        self.draw.text((x * self.scale, y * self.scale), words, fill, font, anchor)
        return self.width(words, size)

    def width(self, words: str, size: float) -> float:
        return self.font(size).getlength(words) / self.scale


def frames(record: Record, width: int = SIZE[0], seconds: float = 8.0) -> Iterator[Image.Image]:
    """The story of one step, then the whole race in `seconds`; the last frame carries the verdict.

    Raises `ValueError` for a size or length out of bounds.
    """
    lanes = side_by_side(record)
    for name, value, (least, most) in (("width", width, WIDTHS), ("seconds", seconds, SECONDS)):
        if not least <= value <= most:
            raise ValueError(f"{name} must be between {least} and {most}, got {value}.")
    yield from story(record, width / SIZE[0])
    longest = max(lane.trace.seconds for lane in lanes)
    count = max(2, round(seconds * FRAMES_A_SECOND))
    for at in range(count):
        yield frame(record, longest * at / (count - 1), width / SIZE[0], last=at == count - 1)


def story(record: Record, scale: float) -> Iterator[Image.Image]:
    """The first step of the right lane with a right guess, scene by scene; nothing where there is none."""
    lane = record.lanes[1]
    at = next((at for at, step in enumerate(lane.trace.steps) if step.path), None)
    if at is None:
        return
    step = lane.trace.steps[at]
    clock = sum(each.total_seconds for each in lane.trace.steps[:at])
    guesses, depths = len(step.parents) - 1, layout(step.parents)[0]
    kept = {0, *step.path}

    def scene(words: str, looks: list[str], joined: bool = False) -> Image.Image:
        time = clock + (step.total_seconds if joined else 0.0)
        return drawn(record, time, scale, (words, INK), [step], looks)

    shoots = max(
        1, min(max(depths), step.draft_forwards)
    )  # each draft forward lets levels come, as in the page's story
    for shoot in range(1, shoots + 1):
        grown = ["guess" if (depth - 1) * shoots // max(depths) < shoot else "hidden" for depth in depths]
        yield from [scene(guess_words(step, shoots), [*grown, "hidden"])] * LEVEL
    judged = ["kept" if node in kept else "guess" for node in range(guesses + 1)]
    yield from [scene(f"The large model checks {checked(guesses)} in one run.", [*judged, "hidden"])] * SCENE
    left = ["kept" if node in kept else "lost" for node in range(guesses + 1)]
    lost = guesses + 1 - len(kept)
    wrong = (
        "Every guess is right"
        if not lost
        else "Wrong guesses are thrown away"
        if lost > 1
        else "The wrong guess is thrown away"
    )
    own = "; the large model adds a word" if len(step.burst) > len(step.path) else ""
    yield from [scene(f"{wrong}{own}.", [*left, "kept"])] * SCENE
    same = PROMISES.get(lane.guarantee, PROMISES["tokens"])
    joined = "One token joins the text" if len(step.burst) == 1 else f"{len(step.burst)} tokens join the text at once"
    for words in (f"{joined}.", same):
        yield from [scene(words, [*left, "kept"], joined=True)] * SCENE


def guess_words(step: Step, shoots: int) -> str:
    if not step.draft_forwards:
        return "What may come next is guessed, without running a model."
    return "A small model guesses ahead, in one go." if shoots == 1 else "A small model guesses ahead."


def checked(guesses: int) -> str:
    return "the guess" if guesses == 1 else f"all {guesses} guesses at once,"


def frame(record: Record, time: float, scale: float, last: bool) -> Image.Image:
    shots = [shot(lane, time) for lane in record.lanes]
    words = verdict(record) if last else lead(shots)
    return drawn(record, time, scale, words, shots[1].steps[-1:] or shots[1].lane.trace.steps[:1])


def drawn(
    record: Record, time: float, scale: float, said: tuple[str, str], steps: list[Step], looks: Sequence[str] = ()
) -> Image.Image:
    """Both lanes at this time, `said` in its colour, the tree of the step; `looks` by node, the bonus last, in a story."""
    brush = Brush(scale)
    shots = [shot(lane, time) for lane in record.lanes]
    total = max(len(lane.trace.tokens) for lane in record.lanes)
    first = record.lanes[0].trace
    x = 24 + brush.text(24, 36, "Tree", 24, HUES[0][1])
    x += brush.text(x, 36, "Race", 24, HUES[1][1])
    day = f", {record.recorded}" if record.recorded else ""
    brush.text(x + 16, 36, f"{first.pair} · {first.hardware} · {first.dtype}{day}", 15, FAINT)
    for index, each in enumerate(shots):
        draw_lane(brush, each, index, total)
    brush.text(24, 318, said[0], 22, said[1])
    draw_tree(brush, steps, looks)
    return brush.image


def shot(lane: LaneRecord, time: float) -> Shot:
    done, clock = [], 0.0
    for step in lane.trace.steps:
        if clock + step.total_seconds > time + 1e-9:
            return Shot(lane, done, time)
        done.append(step)
        clock += step.total_seconds
    return Shot(lane, done, clock)


def draw_lane(brush: Brush, shot: Shot, index: int, total: int) -> None:
    left, right, top, bottom = 16 + 470 * index, 474 + 470 * index, 50, 286
    line, letters, wash = HUES[index]
    brush.box(left, top, right, bottom, CARD, RULE, 10)
    tokens, done, remote = shot.tokens, len(shot.steps), shot.lane.guarantee == BY_TEXT
    x: float = right - 14
    y = top + 34
    for words, size, fill in (
        (" tokens a pass", 14, FAINT), ("-" if remote or not done else f"{tokens / done:.2f}", 26, INK),
        (" tok/s   ", 14, FAINT), (f"{tokens / shot.clock:.0f}" if done else "-", 26, letters),
    ):  # fmt: skip
        x -= brush.width(words, size)
        brush.text(x, y, words, size, fill)
    brush.text(left + 14, y, fitting(brush, shot.lane.title, 17, x - left - 24), 17, INK)
    brush.box(left + 14, top + 46, right - 88, top + 56, CELL, radius=5)
    if tokens:
        brush.box(left + 14, top + 46, left + 14 + (right - left - 102) * tokens / total, top + 56, line, radius=5)
    brush.text(right - 14, top + 57, f"{shot.clock:.3f} s", 14, INK, "rs")
    draw_text(brush, shot, (left + 14, right - 14, top + 82, bottom - 12), line, wash)


def draw_text(brush: Brush, shot: Shot, room: tuple[float, float, float, float], line: str, wash: str) -> None:
    """The prompt and the bursts, wrapped by words; a chat's reply begins below the prompt. Only the last lines that fit are drawn."""
    left, right, top, bottom = room
    size, height = 17, 23
    trace = shot.lane.trace
    runs = [
        (f"{trace.prompt}\n\n" if trace.chat else trace.prompt, None),
        *(("".join(step.pieces), at) for at, step in enumerate(shot.steps)),
    ]
    lines: list[list[tuple[float, float, str, int | None]]] = [[]]
    x = left
    for text, burst in runs:
        for paragraph, part in enumerate(text.split("\n")):
            if paragraph:
                lines.append([])
                x = left
            for word in words_of(part):
                wide = brush.width(word, size)
                if x + wide > right and x > left:
                    lines.append([])
                    x, word = left, word.lstrip(" ")
                    wide = brush.width(word, size)
                lines[-1].append((x, wide, word, burst))
                x += wide
    for row, line_of in enumerate(lines[-int((bottom - top) // height) - 1 :]):
        y = top + row * height
        for x, wide, word, burst in line_of:
            ink = x + wide - brush.width(word.lstrip(" "), size)
            if burst is not None and word.strip():
                if line == HUES[1][0]:
                    brush.box(ink, y - 15, x + wide, y + 4, wash if burst % 2 else "#fdf3df")
                brush.line([ink, y + 5, x + wide, y + 5], line, 2)
            brush.text(x, y, word, size, FAINT if burst is None else INK)


def words_of(text: str) -> list[str]:
    """The words, each with the spaces before it."""
    words, gap = [], ""
    for part in text.split(" "):
        if part:
            words.append(gap + part)
            gap = ""
        gap += " "
    return [*words, gap[1:]] if len(gap) > 1 else words


def draw_tree(brush: Brush, steps: list[Step], looks: Sequence[str] = ()) -> None:
    brush.box(16, TREE_TOP, 944, 584, CARD, RULE, 10)
    [step] = steps
    if not step.tokens:
        brush.text(30, TREE_TOP + 26, "Another server wrote the right lane: there is no tree to show.", 15, FAINT)
        return
    brush.text(30, TREE_TOP + 26, f"Draft tree, step {step.index + 1}", 15, FAINT)
    bonus = len(step.burst) > len(step.path)
    last = step.path[-1] if step.path else 0
    parents = [*step.parents, last] if bonus else step.parents
    texts = [*step.texts, step.bonus_text] if bonus else step.texts
    verdicts = [*step.verdicts, "bonus"] if bonus else step.verdicts
    look = dict(enumerate(looks))  # what a story does not name has been judged, like all of a race
    verdicts = [REJECTED if look.get(node) == "guess" and node else each for node, each in enumerate(verdicts)]
    columns, rows = layout(parents)
    height = min(34.0, 196 / max(1, max(rows)))
    size = max(9.0, min(17.0, height * 0.62))
    pitch = min(210.0, 880 / (max(columns) + 1))
    top = TREE_TOP + 38 + (584 - TREE_TOP - 50 - height * max(rows)) / 2
    places = [(44 + column * pitch, top + row * height) for column, row in zip(columns, rows, strict=True)]
    kept = {0, *step.path} | ({len(parents) - 1} if bonus else set())
    kept = {node for node in kept if look.get(node, "kept") == "kept"}
    there = [node for node in range(len(parents)) if look.get(node) != "hidden"]
    labels = [fitting(brush, shown(text), size, pitch - 40) for text in texts]
    for node in sorted(there[1:], key=lambda node: node in kept):
        (x, y), (to_x, to_y) = places[parents[node]], places[node]
        x += 12 + brush.width(labels[parents[node]], size)
        hue, wide = (HUES[1][0], 4) if node in kept else (RULE if look.get(node) == "lost" else "#c3c2bb", 1.5)
        brush.line([min(x, to_x - 16), y, max(to_x - 24, min(x, to_x - 16)), y, to_x - 6, to_y], hue, wide)
    for node in there:
        (x, y), verdict = places[node], verdicts[node]
        draw_node(brush, x, y, verdict, min(1.0, height / 20))
        fill = HUES[1][1] if verdict in (ACCEPTED, "bonus") else INK if verdict == ROOT else FAINT
        fill = {"guess": INK, "lost": RULE}.get(look.get(node, ""), fill)
        brush.text(x + 11, y, labels[node], size, fill, "lm")


def draw_node(brush: Brush, x: float, y: float, verdict: str, scale: float) -> None:
    r = {ROOT: 5, ACCEPTED: 6, "bonus": 8, UNREACHED: 2.5}.get(verdict, 5) * max(0.5, scale)
    tree = HUES[1][0]
    if verdict == ACCEPTED:
        brush.box(x - r, y - r, x + r, y + r, tree)
    elif verdict == "bonus":
        brush.draw.polygon(brush.at(x - r, y, x, y - r, x + r, y, x, y + r), tree)
    else:
        fill, edge = {ROOT: (INK, INK), UNREACHED: ("#c3c2bb", "#c3c2bb")}.get(verdict, (CARD, FAINT))
        brush.draw.ellipse(brush.at(x - r, y - r, x + r, y + r), fill, edge, max(1, round(2 * brush.scale)))


def lead(shots: list[Shot]) -> tuple[str, str]:
    """Who has written more tokens a second so far. While both lanes write, that is who has more tokens."""
    if min(each.tokens for each in shots) < 3:
        return "", INK
    left, right = (each.tokens / each.clock for each in shots)
    ahead = int(right >= left)
    ratio = max(left, right) / min(left, right)
    return ("level", INK) if ratio < 1.05 else (f"{ratio:.1f}x ahead: {shots[ahead].lane.title}", HUES[ahead][1])


def verdict(record: Record) -> tuple[str, str]:
    result = record.result()
    speedup, same = result["speedup"], result["identical"]
    if same == "failed":
        return "the other server failed: nothing to compare", INK
    ratio = speedup if speedup >= 1 else 1 / speedup
    outcome = "level" if ratio < 1.05 else f"{ratio:.1f}x {'faster' if speedup >= 1 else 'slower'}"
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


def shown(text: str) -> str:
    return text.strip(" ").translate(VISIBLE) or "␣"


def fitting(brush: Brush, words: str, size: float, room: float) -> str:
    if brush.width(words, size) <= room:
        return words
    while len(words) > 1 and brush.width(f"{words}…", size) > room:
        words = words[:-1]
    return f"{words}…"


def save(record: Record, path: Path, width: int = SIZE[0], seconds: float = 8.0) -> None:
    """Writes the GIF. One palette and no dithering keep flat colours flat, and what did not change then takes no bytes."""
    drawn = list(frames(record, width, seconds))
    palette = drawn[-1].quantize(48)
    first, *others = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in drawn]
    each_ms = 1000 // FRAMES_A_SECOND
    held = [each_ms] * len(others) + [int(1000 * HELD_SECONDS)]
    first.save(path, save_all=True, append_images=others, duration=held, loop=0, optimize=True)
