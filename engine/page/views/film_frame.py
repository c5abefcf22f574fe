"""One frame of a film: both lanes at a time, a sentence, a step's tree and, in a story, its rows of the KV cache. Draws with Pillow."""

import math
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

from engine.page.views.layout import columns_of, layout
from engine.record.race_file import BY_TEXT, LaneRecord, Record
from engine.record.trace import ACCEPTED, REJECTED, ROOT, UNREACHED, Step, Trace

PAPER, CARD, INK, FAINT, RULE, CELL = "#f4f3ee", "#ffffff", "#1b1c1e", "#5b5c5e", "#d9d8d1", "#eeede7"
HUES = (("#0072b2", "#005f96", "#dcebf4"), ("#d55e00", "#a84300", "#f9e6c4"))  # by lane: line, letters, wash
SIZE = (960, 600)  # all places and sizes below are in pixels of a frame this large
TREE_TOP, TREE_BOTTOM, CACHE_TOP = 330, 584, 536
LEAST_LETTERS = 9.0
SIGNS = str.maketrans({"\n": "\\n", "\t": "\\t", "\r": "\\r"})  # Pillow's own letters have no arrows
OPEN = ("guess", "chosen")  # looks of a node that has not been judged for all to see
# Stand for all rows of the text so far
OLD_ROWS = ("#eeede7", "#e2e1d9", "#d5d3ca", "#c9c6bb", "#bcb9ae", "#b0ada2", "#a9a79d")


@dataclass(frozen=True)
class Moment:
    """What a story shows of a step: by node, the bonus last, "hidden", "guess", "chosen", "kept", "lost" or, of the bonus, "ghost".

    `rows` says how many nodes have rows in the KV cache that are tried, and `judged` and `joined` what has become of them. `sweep` is
    the share of the tree that the target's forward has passed, `None` before and after it.
    """

    looks: list[str]
    rows: int = 0
    judged: bool = False
    joined: bool = False
    sweep: float | None = None


@dataclass(frozen=True)
class Shot:
    """What a lane has done by a point in time."""

    lane: LaneRecord
    steps: list[Step]
    clock: float
    tokens: int


@cache
def face(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


class Brush:
    """A frame to draw on. Places are in pixels of `SIZE`; the picture is `scale` times as large."""

    def __init__(self, scale: float):
        self.scale = scale
        self.image = Image.new("RGB", (round(SIZE[0] * scale), round(SIZE[1] * scale)), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def at(self, *places: float) -> list[float]:
        return [place * self.scale for place in places]

    def box(self, left, top, right, bottom, fill, outline=None, radius=0.0) -> None:
        box = [round(place) for place in self.at(left, top, right, bottom)]
        self.draw.rounded_rectangle(box, radius * self.scale, fill, outline)

    def line(self, places: list[float], fill, width: float) -> None:
        self.draw.line(self.at(*places), fill, max(1, round(width * self.scale)), joint="curve")

    def dashes(self, places: list[float]) -> None:
        """A dashed line through these places, of what is not taken yet."""
        points = list(zip(places[::2], places[1::2], strict=True))
        for (x, y), (to_x, to_y) in pairwise(points):
            count = max(1, round(math.hypot(to_x - x, to_y - y) / 8))
            for at in range(count):
                shares = [(at + share) / count for share in (0, 0.55)]
                ends = [place for share in shares for place in (x + (to_x - x) * share, y + (to_y - y) * share)]
                self.line(ends, HUES[0][0], 2.5)

    def text(self, x, y, words, size, fill, anchor="ls") -> float:
        """Draws the words and returns their width."""
        self.draw.text((x * self.scale, y * self.scale), words, fill, face(size * self.scale), anchor)
        return self.width(words, size)

    def width(self, words: str, size: float) -> float:
        return face(size * self.scale).getlength(words) / self.scale


def drawn(
    record: Record, time: float, scale: float, said: tuple[str, str], step: Step, moment: Moment | None = None
) -> Image.Image:
    """Both lanes at this time, `said` in its colour, the tree of the step; in a story as far as it is told at this moment."""
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
    draw_tree(brush, step, moment)
    if moment:
        draw_cache(brush, step, moment)
    return brush.image


def shot(lane: LaneRecord, time: float) -> Shot:
    clocks = lane.trace.clocks
    done = bisect_right(clocks, time + 1e-9)
    steps = lane.trace.steps[:done]
    return Shot(lane, steps, time if done < len(clocks) else clocks[-1], sum(len(step.burst) for step in steps))


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
    lines = wrapped(brush, shot.lane.trace, right - left, size)
    seen = [[each for each in line_of if each[3] is None or each[3] < len(shot.steps)] for line_of in lines]
    while seen and not seen[-1]:
        seen.pop()
    for row, line_of in enumerate(seen[-int((bottom - top) // height) - 1 :]):
        y = top + row * height
        for place, wide, word, burst in line_of:
            x = left + place
            ink = x + wide - brush.width(word.lstrip(" "), size)
            if burst is not None and word.strip():
                if line == HUES[1][0]:
                    brush.box(ink, y - 15, x + wide, y + 4, wash if burst % 2 else "#fdf3df")
                brush.line([ink, y + 5, x + wide, y + 5], line, 2)
            brush.text(x, y, word, size, FAINT if burst is None else INK)


def wrapped(brush: Brush, trace: Trace, room: float, size: float) -> list[list[tuple[float, float, str, int | None]]]:
    """Lines of pieces: place, width, letters, and the burst, `None` in the prompt. All pieces of a word stand in one line."""
    runs: list[tuple[str, int | None]] = [(f"{trace.prompt}\n\n" if trace.chat else trace.prompt, None)]
    runs += [("".join(step.pieces), at) for at, step in enumerate(trace.steps)]
    words: list[list[tuple[str, int | None]]] = [[]]  # by word its pieces; "\n" alone ends a line
    for text, burst in runs:
        for piece in re.findall(r"\n| *[^ \n]+| +", text):
            if piece[0] in " \n":
                words.append([])
            words[-1].append((piece, burst))
            if piece == "\n":
                words.append([])
    lines: list[list[tuple[float, float, str, int | None]]] = [[]]
    x = 0.0
    for word in words:
        if word and word[0][0] == "\n":
            lines.append([])
            x = 0.0
            continue
        if x and x + sum(brush.width(piece, size) for piece, _ in word) > room:
            lines.append([])
            x, word = 0.0, [(word[0][0].lstrip(" "), word[0][1]), *word[1:]]
        for piece, burst in word:
            wide = brush.width(piece, size)
            if x and x + wide > room:  # a word that is longer than a line
                lines.append([])
                x = 0.0
            lines[-1].append((x, wide, piece, burst))
            x += wide
    return lines


def draw_tree(brush: Brush, step: Step, moment: Moment | None) -> None:
    brush.box(16, TREE_TOP, 944, TREE_BOTTOM, CARD, RULE, 10)
    if not step.tokens:
        brush.text(30, TREE_TOP + 26, "Another server wrote the right lane: there is no tree to show.", 15, FAINT)
        return
    brush.text(30, TREE_TOP + 26, f"Draft tree, step {step.index + 1}", 15, FAINT)
    bonus = step.has_bonus
    last = step.path[-1] if step.path else 0
    parents = [*step.parents, last] if bonus else step.parents
    texts = [shown(text) for text in ([*step.texts, step.bonus_text] if bonus else step.texts)]
    verdicts = [*step.verdicts, "bonus"] if bonus else step.verdicts
    look = dict(enumerate(moment.looks if moment else ()))  # what no story names has been judged, like all of a race
    verdicts = [REJECTED if look.get(node) in OPEN and node else each for node, each in enumerate(verdicts)]
    columns, rows = layout(parents)
    bottom = CACHE_TOP if moment else TREE_BOTTOM
    height = min(34.0, (bottom - TREE_TOP - 58) / max(1, max(rows)))
    top = TREE_TOP + 38 + (bottom - TREE_TOP - 50 - height * max(rows)) / 2
    path = {0, *step.path} | ({len(parents) - 1} if bonus else set())
    kept = {node for node in path if look.get(node, "kept") == "kept"}
    there = [node for node in range(len(parents)) if look.get(node) != "hidden"]
    if bonus and moment:
        texts[-1] += f" · p {percent(step.bonus_p)}"  # how sure the target was of it
    if height < LEAST_LETTERS:
        texts = [text if node in path else "" for node, text in enumerate(texts)]
    largest = max(LEAST_LETTERS, min(17.0, height * 0.62))
    size, starts, rooms = columns_of(texts, columns, path, brush.width, 880, (LEAST_LETTERS, largest))
    starts = [44 + start for start in starts]
    labels = [fitting(brush, text, size, rooms[column]) for text, column in zip(texts, columns, strict=True)]
    places = [(starts[column], top + row * height) for column, row in zip(columns, rows, strict=True)]
    for node in sorted(there[1:], key=lambda node: node in kept):
        (x, y), (to_x, to_y) = places[parents[node]], places[node]
        x += 12 + brush.width(labels[parents[node]], size)
        way = [min(x, to_x - 16), y, max(to_x - 24, min(x, to_x - 16)), y, to_x - 6, to_y]
        if look.get(node) == "ghost":
            brush.dashes(way)
        else:
            hue, wide = (HUES[1][0], 4) if node in kept else (RULE if look.get(node) == "lost" else "#c3c2bb", 1.5)
            brush.line(way, hue, wide)
    for node in there:
        (x, y), verdict = places[node], verdicts[node]
        draw_node(brush, x, y, verdict, min(1.0, height / 20), look.get(node, "kept"))
        fill = HUES[1][1] if verdict in (ACCEPTED, "bonus") else INK if verdict == ROOT else FAINT
        fill = {"guess": INK, "chosen": HUES[0][1], "ghost": HUES[0][1], "lost": RULE}.get(look.get(node, ""), fill)
        brush.text(x + 11, y, labels[node], size, fill, "lm")
    if moment and moment.sweep is not None:
        x = starts[0] + moment.sweep * (starts[-1] - starts[0])
        brush.line([x, TREE_TOP + 36, x, bottom - 10], HUES[0][0], 4)


def draw_node(brush: Brush, x: float, y: float, verdict: str, scale: float, look: str) -> None:
    r = {ROOT: 5, ACCEPTED: 6, "bonus": 8, UNREACHED: 2.5}.get(verdict, 5) * max(0.5, scale)
    blue, tree = HUES[0][0], HUES[1][0]
    if verdict == ACCEPTED:
        brush.box(x - r, y - r, x + r, y + r, tree)
    elif verdict == "bonus":
        fill, edge = (CARD, blue) if look == "ghost" else (tree, tree)
        brush.draw.polygon(brush.at(x - r, y, x, y - r, x + r, y, x, y + r), fill, edge, max(1, round(2 * brush.scale)))
    else:
        fill, edge = {ROOT: (INK, INK), UNREACHED: ("#c3c2bb", "#c3c2bb")}.get(verdict, (CARD, FAINT))
        if look == "lost":
            edge = RULE
        if look == "chosen":  # the target's own choice, not yet taken
            r, edge = r + 1.5, blue
        brush.draw.ellipse(brush.at(x - r, y - r, x + r, y + r), fill, edge, max(1, round(2 * brush.scale)))


def draw_cache(brush: Brush, step: Step, moment: Moment) -> None:
    """The rows of the KV cache: those of the text so far, those of the guesses, and what becomes of them."""
    count, kept = len(step.parents), [0, *step.path]
    top, bottom = CACHE_TOP + 8, TREE_BOTTOM - 10
    brush.text(30, (top + bottom) / 2, "KV cache", 15, FAINT, "lm")
    pitch = min(22.0, 560 / (len(OLD_ROWS) + count + 1))
    wide = max(1.5, 0.78 * pitch)
    for at, hue in enumerate(OLD_ROWS):
        brush.box(120 + at * pitch, top, 120 + at * pitch + wide, bottom, hue)
    start = 120 + (len(OLD_ROWS) + 0.5) * pitch
    for node in range(moment.rows):
        lasts = node in kept
        if moment.joined and not lasts:
            continue
        x = start + (kept.index(node) if moment.joined else node) * pitch
        fill, edge = (HUES[1][0],) * 2 if moment.judged and lasts else (CARD, FAINT if moment.judged else HUES[0][0])
        brush.box(x, top, x + wide, bottom, fill, edge)
        if moment.judged and not lasts and wide > 8:
            for y, to_y in ((top + 8, bottom - 8), (bottom - 8, top + 8)):
                brush.line([x + 0.2 * wide, y, x + 0.8 * wide, to_y], FAINT, 1.5)
    words = f"{moment.rows} rows tried" if moment.rows == count else ""
    if moment.judged:
        words = f"{len(kept)} kept, {count - len(kept)} thrown away"
    brush.text(930, (top + bottom) / 2, words, 15, INK, "rm")


def shown(text: str) -> str:
    return text.strip(" ").translate(SIGNS) or "_"


def percent(share: float) -> str:
    """It never reads 0 % where that is only rounding."""
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def fitting(brush: Brush, words: str, size: float, room: float) -> str:
    if brush.width(words, size) <= room:
        return words
    while len(words) > 1 and brush.width(f"{words}…", size) > room:
        words = words[:-1]
    return f"{words}…"
