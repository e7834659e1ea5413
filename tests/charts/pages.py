"""A page as a browser reads it: every tag is closed, and there are its words."""

from html.parser import HTMLParser

__all__ = ["PageReader", "read_page"]


class PageReader(HTMLParser):
    """Checks that every tag is closed, and keeps the words."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read_page(page: str) -> PageReader:
    reader = PageReader()
    reader.feed(page)
    return reader
