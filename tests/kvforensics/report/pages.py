"""HTML read back: its tags in order, and its boxes as Chromium lays them out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")


class Parser(HTMLParser):
    """Collects tags, and complains of one that is closed out of order."""

    VOID = frozenset(("meta", "br"))

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.words, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def parsed(text):
    parser = Parser()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser


def measured(page, expression, folder, width=1000):
    """Give what a JavaScript expression comes to in a window on the page. `w(selector)`: a box's width."""
    probe = (
        "<script>addEventListener('load', () => {"
        "const w = e => document.querySelector(e).getBoundingClientRect().width;"
        f"document.title = JSON.stringify({expression}) }})</script>"
    )
    page = re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</body>", probe + "</body>")
    (folder / "page.html").write_text(page, encoding="utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom")
    done = subprocess.run(
        ["chromium", *flags, f"--window-size={width},900", (folder / "page.html").as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout)[1]))
