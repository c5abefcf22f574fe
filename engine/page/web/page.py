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
    ValuesOrRefusal,
    choose_opening_shape,
    list_recorded_races,
    serialise_recorded_race,
)
from engine.page.screens.cards import (
    LANES,
    describe_model_beside_prompt,
    describe_offered_pairs_by_size,
    describe_pair,
    map_first_label_of_each_group_to_group,
    map_menu_labels_to_summaries,
)
from engine.page.views import page_files
from engine.page.views.standalone import PLOTLY
from engine.page.web import lab, prix, race
from engine.page.web.bodies import AllowedEndpoints
from engine.page.web.document import build_plain_and_high_specificity_styles, insert_links_styles_and_script
from engine.page.web.form import Fields, build_prompt_box, build_shape_sampling_and_constraint_dials
from engine.page.web.guard import RequestGuardMiddleware
from engine.page.web.lending import SERVED, ServedPairs
from engine.page.web.parts import build_javascript_call, build_scripted_html_part
from engine.page.web.sessions import BoundedEventsBySession
from engine.page.web.streams import (
    QUIET,
    RequestValuesFunction,
    add_streaming_api_endpoint,
    connect_run_button_to_event_stream,
    visitor_session_or_address,
)
from engine.remote.server import OpenAICompatibleServer

SESSIONS = 200  # of which Gradio keeps what its components show; nobody misses what it keeps of others
CALLS = 400  # that Gradio handles at once; most of them wait for the device
DRAWING = f"plotly-{metadata.version('plotly')}.min.js"  # where the page finds Plotly's script
LOOK = 0.05  # seconds between two looks at the queue, so that an idle page takes hardly any of a core


@dataclass(frozen=True)
class Screen:
    """One tab of the page. Its elements' ids begin with `name`; `start_button_label` is its Start button's word, `kinds_of_runs`
    the kinds that it can run.

    `build_column` builds its own column from the shared form, and returns the fields that the form has from then on.
    """

    name: str
    title: str
    start_button_label: str
    build_column: Callable[[ServedPairs, Fields], Fields]
    kinds_of_runs: tuple[str, ...] = ()


SCREENS = (  # the first one is open at the start
    Screen(
        "race",
        "Race",
        start_button_label="Race",
        build_column=race.build_race_screen,
        kinds_of_runs=("race", "curve", "distance"),
    ),
    Screen(
        "prix",
        "Grand prix",
        start_button_label="Race",
        build_column=prix.build_grand_prix_screen,
        kinds_of_runs=("prix",),
    ),
    Screen(
        "lab",
        "Lab",
        start_button_label="Start",
        build_column=lab.build_lab_screen,
        kinds_of_runs=("sweep", "prompts", "pays"),
    ),
)

API: dict[str, RequestValuesFunction] = {  # by the names of its endpoints, which are kinds of requests
    "race": race.collect_race_request_values,
    "prix": prix.collect_grand_prix_request_values,
    "sweep": lab.collect_sweep_request_values,
    "prompts": lab.collect_prompt_file_request_values,
    "pays": lab.collect_pays_request_values,
}


def build_gradio_page_and_api(served: ServedPairs, screens: Sequence[Screen] = SCREENS) -> gr.Blocks:
    """The page. The form is shared; each screen has a Start and a Stop in the form's row and a column of its own."""
    SERVED["page"] = served
    with gr.Blocks(title="TreeRace", analytics_enabled=False, fill_width=True) as page, gr.Column(elem_id="screen"):
        build_masthead(served, screens)
        with gr.Row(elem_id="entry"):
            prompt = build_prompt_box(served.pair.chat)
            build_scripted_html_part("chat", "chatTurns.mountChat")
            for screen in screens:
                build_start_and_stop_buttons(screen)
        columns = [gr.Column(elem_id=f"{screen.name}-screen", elem_classes="of-screen") for screen in screens]
        with gr.Row(elem_id="dials"):
            form = {"prompt": prompt} | build_shape_sampling_and_constraint_dials(
                **choose_opening_shape(served.initial_lane_systems, served.pairs)
            )
        for screen, column in zip(screens, columns, strict=True):
            with column:
                form = screen.build_column(served, form)
        connect_run_button_to_event_stream(served, form)
        for api_name, build_request_values in API.items():
            add_streaming_api_endpoint(served, api_name, build_request_values)
        prompt.submit(None, js=build_javascript_call("form.pressGo"), **QUIET)
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

    def opening(name: object) -> ValuesOrRefusal:
        return answers.serialise_opening_race_of_embedded_pair(name, served.pair)

    build_scripted_html_part(
        "masthead",
        "masthead.mountHeader",
        about,
        server_functions=[
            opening,
            serialise_recorded_race,
            build_server_function_reading_race_file("opened"),
            build_server_function_reading_race_file("replay_page"),
        ],
    )


def describe_pairs_on_offer(served: ServedPairs) -> dict[str, Any]:
    """What the page's head says of its pairs: of its own one, and of those that a visitor may choose from."""
    return {**describe_pair(served.pair), "pairs": describe_offered_pairs_by_size(served.pairs)}


def build_server_function_reading_race_file(output_form: str) -> Callable[[object], ValuesOrRefusal]:
    """A part's function of that name. It reads a race file for a visitor; all visitors of one address count as one."""

    def of_visitor(given: object) -> ValuesOrRefusal:
        return race_files.convert_race_file_in_subprocess(
            output_form, given, visitor_session_or_address(is_open_page=False)
        )

    of_visitor.__name__ = output_form
    return of_visitor


def build_start_and_stop_buttons(screen: Screen) -> None:
    start = gr.Button(screen.start_button_label, variant="primary", elem_id=f"{screen.name}-go", elem_classes="go")
    start.click(None, js=build_javascript_call("runs.start", screen.name), **QUIET)
    stop = gr.Button("Stop", elem_id=f"{screen.name}-halt", elem_classes="halt")
    stop.click(None, js=build_javascript_call("runs.stop", *screen.kinds_of_runs), **QUIET)


def mount_guarded_page(page: gr.Blocks, remote_server: OpenAICompatibleServer | None = None) -> FastAPI:
    """The page as an application that a server of ours can take."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    root = os.environ.get("GRADIO_ROOT_PATH")
    gr.mount_gradio_app(
        app, page, path="/", root_path=root, show_error=False, **configure_queue_and_build_launch_options(page)
    )
    app.add_middleware(
        RequestGuardMiddleware,
        allowed_endpoints=collect_allowed_endpoints(page),
        transform_document=partial(insert_styles_and_scripts, remote_server),
    )
    return app


def launch_gradio_server_and_block(
    page: gr.Blocks, host: str, port: int, remote_server: OpenAICompatibleServer | None = None
) -> None:
    """Serves the page until the process ends, on a server that Gradio makes. ZeroGPU lends GPUs to no other."""
    guarded = {
        "middleware": [
            Middleware(
                RequestGuardMiddleware,
                allowed_endpoints=collect_allowed_endpoints(page),
                transform_document=partial(insert_styles_and_scripts, remote_server),
            )
        ]
    }
    page.launch(
        server_name=host,
        server_port=port,
        quiet=True,
        share=False,
        app_kwargs=guarded,
        **configure_queue_and_build_launch_options(page),
    )


def collect_allowed_endpoints(page: gr.Blocks) -> AllowedEndpoints:
    """What may be asked of the page: the events that have a function, the API, its parts' functions, and Plotly's script."""
    events = {at: each for at, each in page.fns.items() if each.fn}
    return AllowedEndpoints(
        value_count_by_queued_event={at: len(each.inputs) for at, each in events.items() if each.queue},
        value_count_by_unqueued_event={at: len(each.inputs) for at, each in events.items() if not each.queue},
        value_count_by_api_name={
            str(each.api_name): len(each.inputs) for each in events.values() if each.api_visibility == "public"
        },
        component_functions=frozenset(
            (at, each.__name__) for at, block in page.blocks.items() for each in getattr(block, "server_fns", ())
        ),
        file_by_address={f"/{DRAWING}": PLOTLY},
    )


def insert_styles_and_scripts(remote_server: OpenAICompatibleServer | None, gradio_document: bytes) -> bytes:
    """The document that browsers get, from `gradio_document`, as Gradio makes it."""
    letters = (
        f'<link rel="preload" as="font" crossorigin href="./static/{file}" />' for _, _, file in page_files.FONTS
    )
    drawing = f'<link href="{DRAWING}" id="plotly" />'  # fetched once the page has arrived
    served, screens = SERVED["page"], (screen.name for screen in SCREENS)
    ours = build_screen_and_menu_style_rules(
        screens, served.initial_lane_systems, remote_server, describe_model_beside_prompt(served.pair)
    )
    css = "\n".join((page_files.join_styles_or_scripts_of_page("styles", "page"), ours))
    links = "\n".join((*letters, drawing))
    return insert_links_styles_and_script(
        gradio_document,
        links,
        build_plain_and_high_specificity_styles(css),
        page_files.join_styles_or_scripts_of_page("scripts", "page"),
    )


def configure_queue_and_build_launch_options(page: gr.Blocks) -> dict[str, Any]:
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


def build_screen_and_menu_style_rules(
    screen_names: Iterable[str],
    lane_systems: Iterable[str] = LANES,
    remote_server: OpenAICompatibleServer | None = None,
    model_note: str = "",
) -> str:
    """The style rules of a page with these screens, by name, whose lanes start with these systems. `remote_server` is in its menus too.

    They hide a screen's column and buttons while another one is shown. In the menus they write each idea above its first system, and
    a line beside every system. What `model_note` says stands beside the prompt.
    """
    hiding = (
        f'#screen:not([data-screen="{name}"]) :is(#{name}-screen, #{name}-go, #{name}-halt) {{ display: none; }}'
        for name in screen_names
    )
    heading = (
        f"#systems > :nth-child({side}) {css_selector_of_menu_option(label)}::before {{ content: {json.dumps(words)}; }}"
        for side, first in enumerate(lane_systems, 1)
        for label, words in map_first_label_of_each_group_to_group(first, remote_server).items()
    )
    about = (
        f"#systems {css_selector_of_menu_option(label)}::after {{ content: {json.dumps(line)}; }}"
        for label, line in map_menu_labels_to_summaries().items()
    )
    beside = f"#prompt::after {{ content: {json.dumps(model_note, ensure_ascii=False)}; }}"
    return "\n".join((*hiding, *heading, *about, beside))


def css_selector_of_menu_option(label: str) -> str:
    """The selector of a menu's entry, whichever of the entries a search has left."""
    return f"li[aria-label={json.dumps(label)}]"
