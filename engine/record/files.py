"""Files: reads the text of a file that a person named. Knows files; knows no model."""

from pathlib import Path

MOST_BYTES = 20_000_000


def read_text_file(path: Path, advice_if_missing: str) -> str:
    """The file's text, without the mark that some editors begin it with. `advice_if_missing` is a sentence on what to name.

    Raises `ValueError` that names the file and what is wrong with it, and `OSError` for a file that cannot be opened.
    """
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r}. {advice_if_missing}")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{path.name} has {size / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} MB are read.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 at byte {error.start:,}. Save it as UTF-8.") from None
