"""Table: rows of figures for people, as lines of text. Knows no figure."""

from collections.abc import Callable, Iterable, Sequence

Column = tuple[
    str, str | Callable[[dict], str]
]  # its head, and a format of a row's fields or what makes its cell of a row
NOT_TOLD = "-"
SAME = {True: "yes", False: "NO", "law": "in law", "lossy": "lossy", None: NOT_TOLD}


def format_table(columns: Sequence[Column], rows: Iterable[dict]) -> list[str]:
    """The heads and a line for every row. Each column is as wide as its widest cell; the first stands left, the others right."""
    cells = [[head for head, _ in columns]]
    cells += [[form.format_map(row) if isinstance(form, str) else form(row) for _, form in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in cells]


def optional_field_formatter(field: str, format_spec: str) -> Callable[[dict], str]:
    """A cell of the field, or a dash where it is None."""
    return lambda row: NOT_TOLD if row[field] is None else format(row[field], format_spec)


def format_text_identity(row: dict) -> str:
    """Whether a row's texts are plain decoding's."""
    return SAME[row["identical"]]
