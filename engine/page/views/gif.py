"""A race as an animated GIF: the story of one step, both lanes on their clocks, the verdict. Knows a Record; draws with Pillow."""

from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from engine.page.views.film_frame import HUES, INK, SIZE, Shot, drawn, shot
from engine.page.views.film_story import story
from engine.record.race_file import Record, side_by_side

FRAMES_A_SECOND, HELD_SECONDS = 10, 2.0
WIDTHS, SECONDS = (480, 1920), (1, 60)


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


def frame(record: Record, time: float, scale: float, last: bool) -> Image.Image:
    shots = [shot(lane, time) for lane in record.lanes]
    words = verdict(record) if last else lead(shots)
    return drawn(record, time, scale, words, shots[1].steps[-1:] or shots[1].lane.trace.steps[:1])


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


def save(record: Record, path: Path, width: int = SIZE[0], seconds: float = 8.0) -> None:
    """Writes the GIF. One palette and no dithering keep flat colours flat, and what did not change then takes no bytes."""
    drawn = list(frames(record, width, seconds))
    palette = drawn[-1].quantize(48)
    first, *others = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in drawn]
    each_ms = 1000 // FRAMES_A_SECOND
    held = [each_ms] * len(others) + [int(1000 * HELD_SECONDS)]
    first.save(path, save_all=True, append_images=others, duration=held, loop=0, optimize=True)
