"""The page: its screens, the form, the head and the look that they share, and how it is served. Knows no screen from inside."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import gradio as gr
from fastapi import FastAPI
from fastapi.middleware import Middleware

from engine.page.screens import answers, race_files
from engine.page.screens.answers import (
    CHAT_PROMPTS,
    PROMPTS,
    Answer,
    choose_opening_shape,
    list_recorded_races,
    serialise_recorded_race,
)
from engine.page.screens.cards import (
    LANES,
    describe_model_beside_prompt,
    describe_offered_pairs_by_size,
    describe_pair,
    map_first_labels_to_ideas,
    map_menu_labels_to_summaries,
)
from engine.page.views import page_files
from engine.page.views.standalone import PLOTLY
from engine.page.web import lab, prix, race
from engine.page.web.bodies import Endpoints
from engine.page.web.document import build_style_tags_twice_specific, insert_page_files
from engine.page.web.form import Fields, build_dials, build_prompt_box
from engine.page.web.guard import RequestGuardMiddleware
from engine.page.web.lending import SERVED, ServedPairs
from engine.page.web.parts import build_javascript_call, build_scripted_html_part
from engine.page.web.sessions import BoundedEventsBySession
from engine.page.web.streams import QUIET, add_streaming_api_endpoint, connect_runs, visitor_session_or_address
from engine.remote.server import Server

SESSIONS = 200  # of which Gradio keeps what its components show; nobody misses what it keeps of others
CALLS = 400  # that Gradio handles at once; most of them wait for the device
DRAWING = f"plotly-{metadata.version('plotly')}.min.js"  # where the page finds Plotly's script
LOOK = 0.05  # seconds between two looks at the queue, so that an idle page takes hardly any of a core


@dataclass(frozen=True)
class Screen:
    """One tab of the page. Its elements' ids begin with `name`; `start` is its Start button's word, `runs` the kinds that it can run.

    `fill` builds its own column from the shared form, and returns the fields that the form has from then on.
    """

    name: str
    title: str
    start: str
    fill: Callable[[ServedPairs, Fields], Fields]
    runs: tuple[str, ...] = ()


SCREENS = (  # the first one is open at the start
    Screen("race", "Race", start="Race", fill=race.build_race_screen, runs=("race", "curve", "distance")),
    Screen("prix", "Grand prix", start="Race", fill=prix.build_grand_prix_screen, runs=("prix",)),
    Screen("lab", "Lab", start="Start", fill=lab.build_lab_screen, runs=("sweep", "prompts", "pays")),
)


def build_page(served: ServedPairs, screens: Sequence[Screen] = SCREENS) -> gr.Blocks:
    """The page. The form is shared; each screen has a Start and a Stop in the form's row and a column of its own."""
    SERVED["page"] = served
    with gr.Blocks(title="TreeRace", analytics_enabled=False, fill_width=True) as page, gr.Column(elem_id="screen"):
        build_masthead(served, screens)
        with gr.Row(elem_id="entry"):
            prompt = build_prompt_box(served.pair.chat)
            build_scripted_html_part("chat", "mountChat")
            for screen in screens:
                build_start_and_stop_buttons(screen)
        columns = [gr.Column(elem_id=f"{screen.name}-screen", elem_classes="of-screen") for screen in screens]
        with gr.Row(elem_id="dials"):
            form = {"prompt": prompt} | build_dials(**choose_opening_shape(served.lanes, served.pairs))
        for screen, column in zip(screens, columns, strict=True):
            with column:
                form = screen.fill(served, form)
        connect_runs(served, form)
        for endpoint in (race.race, prix.prix, lab.sweep, lab.prompts, lab.pays):
            add_streaming_api_endpoint(served, endpoint)
        prompt.submit(None, js=build_javascript_call("pressGo"), **QUIET)
    return page


def build_masthead(served: ServedPairs, screens: Sequence[Screen]) -> None:
    titles = {screen.name: screen.title for screen in screens}
    about = {
        **describe_pairs_on_offer(served),
        "prompts": PROMPTS,
        "examples": CHAT_PROMPTS,
        "screens": titles,
        "races": list_recorded_races(),
    }

    def opening(name: object) -> Answer:
        return answers.serialise_opening_race(name, served.pair)

    build_scripted_html_part(
        "masthead",
        "mountHeader",
        about,
        server_functions=[
            opening,
            serialise_recorded_race,
            build_race_file_reader("opened"),
            build_race_file_reader("replay_page"),
        ],
    )


def describe_pairs_on_offer(served: ServedPairs) -> dict[str, Any]:
    """What the page's head says of its pairs: of its own one, and of those that a visitor may choose from."""
    return {**describe_pair(served.pair), "pairs": describe_offered_pairs_by_size(served.pairs)}


def build_race_file_reader(wanted_form: str) -> Callable[[object], Answer]:
    """A part's function of that name. It reads a race file for a visitor; all visitors of one address count as one."""

    def of_visitor(given: object) -> Answer:
        return race_files.read_race_file_in_own_process(
            wanted_form, given, visitor_session_or_address(is_open_page=False)
        )

    of_visitor.__name__ = wanted_form
    return of_visitor


def build_start_and_stop_buttons(screen: Screen) -> None:
    start = gr.Button(screen.start, variant="primary", elem_id=f"{screen.name}-go", elem_classes="go")
    start.click(None, js=build_javascript_call("runs.start", screen.name), **QUIET)
    stop = gr.Button("Stop", elem_id=f"{screen.name}-halt", elem_classes="halt")
    stop.click(None, js=build_javascript_call("runs.stop", *screen.runs), **QUIET)


def mount_guarded_page(page: gr.Blocks, remote: Server | None = None) -> FastAPI:
    """The page as an application that a server of ours can take."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    root = os.environ.get("GRADIO_ROOT_PATH")
    gr.mount_gradio_app(app, page, path="/", root_path=root, show_error=False, **configure_queue_and_launch(page))
    app.add_middleware(
        RequestGuardMiddleware,
        doors=collect_allowed_endpoints(page),
        document=partial(insert_styles_and_scripts, remote),
    )
    return app


def launch_gradio_server_and_block(page: gr.Blocks, host: str, port: int, remote: Server | None = None) -> None:
    """Serves the page until the process ends, on a server that Gradio makes. ZeroGPU lends GPUs to no other."""
    guarded = {
        "middleware": [
            Middleware(
                RequestGuardMiddleware,
                doors=collect_allowed_endpoints(page),
                document=partial(insert_styles_and_scripts, remote),
            )
        ]
    }
    page.launch(
        server_name=host,
        server_port=port,
        quiet=True,
        share=False,
        app_kwargs=guarded,
        **configure_queue_and_launch(page),
    )


def collect_allowed_endpoints(page: gr.Blocks) -> Endpoints:
    """What may be asked of the page: the events that have a function, the API, its parts' functions, and Plotly's script."""
    events = {at: each for at, each in page.fns.items() if each.fn}
    return Endpoints(
        events={at: len(each.inputs) for at, each in events.items() if each.queue},
        quick={at: len(each.inputs) for at, each in events.items() if not each.queue},
        named={str(each.api_name): len(each.inputs) for each in events.values() if each.api_visibility == "public"},
        functions=frozenset(
            (at, each.__name__) for at, block in page.blocks.items() for each in getattr(block, "server_fns", ())
        ),
        files={f"/{DRAWING}": PLOTLY},
    )


def insert_styles_and_scripts(remote: Server | None, gradio_document: bytes) -> bytes:
    """The document that browsers get, from `gradio_document`, as Gradio makes it."""
    letters = (
        f'<link rel="preload" as="font" crossorigin href="./static/{file}" />' for _, _, file in page_files.FONTS
    )
    drawing = f'<link href="{DRAWING}" id="plotly" />'  # fetched once the page has arrived
    served, screens = SERVED["page"], (screen.name for screen in SCREENS)
    ours = build_style_rules(screens, served.lanes, remote, describe_model_beside_prompt(served.pair))
    css = "\n".join((page_files.join_styles_or_scripts_of_page("styles", "page"), ours))
    links = "\n".join((*letters, drawing))
    return insert_page_files(
        gradio_document,
        links,
        build_style_tags_twice_specific(css),
        page_files.join_styles_or_scripts_of_page("scripts", "page"),
    )


def configure_queue_and_launch(page: gr.Blocks) -> dict[str, Any]:
    """What Gradio is told of the page however it is served. The page gets its queue."""
    page.state_session_capacity = SESSIONS
    for each in page.fns.values():
        each.preprocess = False  # functions check what they are given, and say what is wrong in a sentence of ours
    queue = page.queue(max_size=CALLS, api_open=False)._queue
    queue.max_thread_count = CALLS
    queue.pending_messages_per_session = BoundedEventsBySession(queue)
    queue.sleep_when_free, queue.progress_update_sleep_when_free = LOOK, 20 * LOOK  # not a thousand times a second
    queue.ANAYLTICS_CACHE_FREQUENCY = sys.maxsize  # its tables of who called what are shown to nobody
    left_out = ("enable_monitoring", "run_history", "ssr_mode", "mcp_server")
    return {"theme": build_theme(), "footer_links": [], **dict.fromkeys(left_out, False)}


def build_theme() -> gr.themes.Base:
    weights = (*page_files.WEIGHTS.values(),)
    return gr.themes.Base(
        primary_hue="orange",
        secondary_hue="blue",
        neutral_hue="stone",
        radius_size="md",
        font=[gr.themes.LocalFont(page_files.SANS, weights=weights), "system-ui", "sans-serif"],
        font_mono=[gr.themes.LocalFont(page_files.MONO, weights=weights), "ui-monospace", "monospace"],
    ).set(
        body_background_fill="#f4f3ee",
        body_background_fill_dark="#0f1113",
        body_text_color="#1b1c1e",
        body_text_color_dark="#f1f2f3",
        body_text_color_subdued="#5b5c5e",
        body_text_color_subdued_dark="#a4abb3",
        block_background_fill="#ffffff",
        block_background_fill_dark="#181b1f",
        border_color_primary="#d9d8d1",
        border_color_primary_dark="#33383e",
        slider_color="#a84300",
        slider_color_dark="#f08a24",
    )


def build_style_rules(
    screens: Iterable[str], lanes: Iterable[str] = LANES, remote: Server | None = None, model: str = ""
) -> str:
    """The style rules of a page with these screens, by name, whose lanes start with these systems. `remote` is in its menus too.

    They hide a screen's column and buttons while another one is shown. In the menus they write each idea above its first system, and
    a line beside every system. What `model` says stands beside the prompt.
    """
    hiding = (
        f'#screen:not([data-screen="{name}"]) :is(#{name}-screen, #{name}-go, #{name}-halt) {{ display: none; }}'
        for name in screens
    )
    heading = (
        f"#systems > :nth-child({side}) {css_selector_of_menu_option(label)}::before {{ content: {json.dumps(words)}; }}"
        for side, first in enumerate(lanes, 1)
        for label, words in map_first_labels_to_ideas(first, remote).items()
    )
    about = (
        f"#systems {css_selector_of_menu_option(label)}::after {{ content: {json.dumps(line)}; }}"
        for label, line in map_menu_labels_to_summaries().items()
    )
    beside = f"#prompt::after {{ content: {json.dumps(model, ensure_ascii=False)}; }}"
    return "\n".join((*hiding, *heading, *about, beside))


def css_selector_of_menu_option(label: str) -> str:
    """The selector of a menu's entry, whichever of the entries a search has left."""
    return f"li[aria-label={json.dumps(label)}]"
