"""Load on a server of one's own, for locust: visitors who race, and strangers who ask for too much.

    locust -f tests/load/locustfile.py --headless --users 50 --run-time 3m --host http://127.0.0.1:7860 Visitor
    locust -f tests/load/locustfile.py --headless --users 20 --run-time 1m --host http://127.0.0.1:7860 Visitor Reader Renamer Deaf

Without names behind it, all kinds of users come. `race: begins` is the wait until a race's first event, `race: whole` all of it. A race
fails that brings another one's events, lacks one, or writes another text than the same race before. Some visitors leave mid-race.
"""

import json
import random
import time
from itertools import count
from typing import Any

from locust import HttpUser, between, constant, events, task
from wire import fill_inputs, find_race, read_line  # locust looks beside this file

HEROES = ("fox", "bear", "girl", "boy", "robot", "cat", "dragon", "mouse", "king", "owl")
LEAVERS = 0.2  # of the visitors
NUMBERS = count()
TEXTS: dict[str, list[str]] = {}  # of every race so far


class OfPage(HttpUser):
    """Calls the server as its page does."""

    abstract = True

    def on_start(self) -> None:
        self.function, self.parts = find_race(self.client.get("/config").json())

    def join(self, session: str, fields: dict[str, Any], name: str) -> int:
        """Puts a race into the queue. Returns the status of the answer."""
        body = {"data": fill_inputs(self.parts, fields), "fn_index": self.function, "session_hash": session}
        return self.client.post("/gradio_api/queue/join", json=body, name=name).status_code


class Visitor(OfPage):
    """One of a hall: races, reads for a while, and races again."""

    weight = 20
    wait_time = between(1, 5)

    @task
    def race(self) -> None:
        prompt = f"Story: Once upon a time, a {random.choice(HEROES)}"
        fields = {
            "prompt": prompt,
            "seed": random.randrange(3),
            "temperature": random.choice((0.0, 0.8)),
            "tokens": 100,
        }
        session, leaves, begun = f"visitor{next(NUMBERS)}", random.random() < LEAVERS, time.perf_counter()
        if self.join(session, fields, "race: asked") != 200:
            return
        seen: list[dict] = []
        fault = ""
        url = f"/gradio_api/queue/data?session_hash={session}"
        with self.client.get(url, stream=True, catch_response=True, name="race: stream") as stream:
            try:
                for event in events_of(stream):
                    if "seq" not in event:  # where it stands, or that it failed
                        continue
                    if not seen:
                        self.tell("race: begins", begun)
                    seen.append(event)
                    if event.get("again") or event.get("end") or (leaves and len(seen) > 1):
                        break
            except ValueError as error:
                fault = str(error)
        self.tell("race: left" if leaves else "race: whole", begun, fault or fault_of(seen, fields, leaves))

    def tell(self, name: str, begun: float, fault: str = "") -> None:
        events.request.fire(
            request_type="RACE",
            name=name,
            response_time=1000 * (time.perf_counter() - begun),
            response_length=0,
            exception=RuntimeError(fault) if fault else None,
            context={},
        )


def events_of(stream):
    """The events of a race. Raises `ValueError` with the sentence of a refusal."""
    for line in stream.iter_lines():
        event, is_last = read_line(line.decode())
        if event:
            yield event
        if is_last:
            return


def fault_of(seen: list[dict], fields: dict[str, Any], leaves: bool) -> str:
    """What is wrong with the events of one race; empty for nothing."""
    prompts = {each["trace"]["prompt"] for event in seen if event.get("start") for each in event["systems"]}
    if len({event["run"] for event in seen}) > 1 or prompts - {fields["prompt"]}:
        return "another visitor's race"
    if [event["seq"] for event in seen] != [*range(1, len(seen) + 1)]:
        return "an event is missing"
    if leaves:
        return ""
    if not seen or not (seen[-1].get("again") or seen[-1].get("end")):
        return "it never ended"
    texts = [lane["text"] for lane in seen[-1]["lanes"]]
    if TEXTS.setdefault(json.dumps(fields), texts) != texts:
        return "another text than the same race before"
    return ""


class Reader(HttpUser):
    """Fetches the page as fast as it is answered."""

    wait_time = constant(0)

    @task
    def read(self) -> None:
        self.client.get("/")


class Renamer(OfPage):
    """Calls under a new name each time, and listens to none."""

    wait_time = constant(0)

    @task
    def call(self) -> None:
        self.join(f"name{next(NUMBERS)}", {"prompt": "Story: No name"}, "renamer")


class Deaf(HttpUser):
    """Asks the API for long races whose news it never fetches."""

    wait_time = constant(0.5)

    @task
    def ask(self) -> None:
        data = ["Story: Nobody listens", "tree", 4, 4, 0.8, 900, 0, "", ""]
        self.client.post("/gradio_api/call/race", json={"data": data}, name="deaf")
