"""Served words: what a running server's two arms gave, for people. Knows the row's figures; knows no server."""

from engine.measure.table import NOT_TOLD, Column, format_table, optional_field_formatter
from engine.measure.words import TOO_FEW, format_speedup_interval

COUNTING = {"guessing": "The server with guesses", "plain": "The server without guesses"}  # by arm


def describe_server_verdict(row: dict) -> str:
    """The verdict in a sentence that begins with it."""
    points = row["points"]
    answers = {each["answer"] for each in points}
    told = ", ".join(f"{each['speedup']:.2f} times as fast at {format_stream_counts([each])}" for each in points)
    if answers == {"yes"}:
        return f"yes: this server's guesses pay. With them it writes {told}."
    if answers == {"no"}:
        return f"no: this server's guesses do not pay. With them it writes {told}."
    able = [each for each in points if each["answer"] == "yes"]
    only = f"only at {format_stream_counts(able)}" if able else "only for some of these prompts"
    return f"{only}: elsewhere this server's guesses do not surely pay. With them it writes {told}."


def format_stream_counts(points: list[dict]) -> str:
    """The numbers of streams, as a person says them."""
    sizes = [str(each["batch"]) for each in points]
    listed = " and ".join(filter(None, (", ".join(sizes[:-1]), sizes[-1])))
    return f"{listed} stream{'' if sizes == ['1'] else 's'}"


def format_server_report(row: dict) -> list[str]:
    """The verdict, the servers, a line for every number of streams, and what bears on trust."""
    return [
        row["verdict"],
        f"{describe_server(row)} against {'itself without guesses' if row['plain']['same_server'] else describe_server(row['plain'])}, "
        f"{row['machine']}, {describe_request(row)}.",
        "",
        *format_table(STREAMS, row["points"]),
        *list_caution_sentences(row),
    ]


STREAMS: list[Column] = [
    ("streams", "{batch}"),
    ("plain/s", "{plain_tokens_per_s:.1f}"),
    ("with/s", "{tokens_per_s:.1f}"),
    ("speedup", "{speedup:.2f}x"),
    ("95 %", format_speedup_interval),
    ("pays", "{answer}"),
    ("tau", optional_field_formatter("tau", ".2f")),
    ("accepted", optional_field_formatter("acceptance", ".0%")),
    ("same text", lambda row: NOT_TOLD if row["identical"] is None else "{identical} of {texts}".format_map(row)),
]


def describe_request(row: dict) -> str:
    """What both arms were asked."""
    return (
        f"T = {row['temperature']:g}, {row['prompts']} prompts, up to {row['tokens']} tokens, "
        f"{'as chat messages' if row['chat'] else 'as they are'}"
    )


def describe_server(server_facts: dict) -> str:
    return " ".join(
        filter(None, (server_facts["engine"] or "a server", server_facts["version"], server_facts["model"]))
    )


def list_caution_sentences(row: dict) -> list[str]:
    """Sentences on what the figures do not say."""
    points, found = row["points"], []
    if doubts := [each["doubt"] for each in points if each["doubt"]]:
        found.append(f"What the server tells of its guesses is left out. {doubts[0]} The verdict does not need it.")
    elif any(each["acceptance"] is None for each in points):
        found.append("The server does not tell what was accepted. The verdict does not need it.")
    for arm in sorted({each["miscounts"] for each in points if each["miscounts"]}):
        found.append(
            f"{COUNTING[arm]} counts tokens that are not in its texts, or not all of them: equal texts had other counts. "
            "Here this side's tokenizer counts them."
        )
    if few := [each for each in points if each["waves"] < TOO_FEW]:
        found.append(
            f"The intervals at {format_stream_counts(few)} are too narrow: {min(each['waves'] for each in few)} waves are few. "
            "Give more prompts."
        )
    if any(each["texts"] > row["prompts"] for each in points):
        found.append("Some prompts were sent more than once, so a drafter that copies earlier answers gains by that.")
    if any(each["identical"] is not None and each["identical"] < each["texts"] for each in points):
        found.append("Other texts may be near-ties: with other rows in a forward, sums are rounded otherwise.")
    if row["model"] != row["plain"]["model"]:
        found.append(f"The servers name different models: {row['model']} and {row['plain']['model']}.")
    return found
