"""The page in Gradio, one file per screen. This is the only room that imports Gradio, and only `app.py` imports this room."""

import inspect
import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported


def import_gradio() -> None:
    """Imports it in half its time: it finds no sources of its components, beside which it would write type stubs."""
    file_of, inspect.getfile = inspect.getfile, raise_no_source_file  # type: ignore[assignment]  # it is called by position
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = file_of


def raise_no_source_file(kind: object) -> str:
    raise OSError(f"The file of {kind} is not looked for.")
