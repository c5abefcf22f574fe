"""The address of a remote server: what is refused, and what is told of it."""

import pytest

from engine.remote.server import OpenAICompatibleServer


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:8000", "ftp://x/v1", "http://", "http://x:99999/v1", "http://x/v1?key=1", "file:///etc"]
)
def test_a_wrong_address_is_refused(address):
    with pytest.raises(ValueError, match="A server's address must be one such as"):
        OpenAICompatibleServer(address)


def test_the_name_tells_no_password():
    server = OpenAICompatibleServer("https://someone:secret@example.org/deep/v1")
    assert server.title == "remote: example.org:443" and "secret" not in server.idea + server.clock_description
