"""Looking through an entity by peek: its end is found, pages are whole, answers are read as they are."""

from typing import NamedTuple, cast

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import MessageSections, encode_value, scan
from pairbus.pump.browsing import PAGE, browse, find_last
from pairbus.pump.peeked_page import read_page
from pairbus.pump.transport import Peeked


class Shelf(NamedTuple):
    """An entity with messages of these numbers; at most so many a page."""

    numbers: list[int]
    most: int = PAGE

    async def first_from(self, number: int) -> Peeked | None:
        return next((one_of(one) for one in self.numbers if one >= number), None)

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        found = [number for number in self.numbers if number >= from_sequence_number]
        return [one_of(number) for number in found[: min(limit, self.most)]]


def one_of(number: int) -> Peeked:
    return Peeked(number, False, cast(MessageSections, None))


number_lists = st.lists(
    st.one_of(st.integers(1, 300), st.integers(1, 2**63 - 2)), min_size=1, max_size=40, unique=True
).map(sorted)


@given(numbers=number_lists)
async def test_the_last_message_is_found_whatever_gaps_there_are(numbers: list[int]) -> None:
    shelf = Shelf(numbers)
    for first in numbers:
        assert (await find_last(shelf.first_from, one_of(first))).sequence_number == numbers[-1]


@given(numbers=number_lists, most=st.integers(1, 5))
async def test_pages_have_every_number_once(numbers: list[int], most: int) -> None:
    pages = [page async for page in browse(Shelf(numbers, most))]
    assert all(pages)
    assert [one.sequence_number for page in pages for one in page] == numbers


payloads = st.lists(st.one_of(st.binary(max_size=40), st.binary(min_size=250, max_size=400)), max_size=5)


@given(payloads=payloads, with_more=st.booleans())
def test_an_answer_is_read_as_the_codec_would(payloads: list[bytes], with_more: bool) -> None:
    more = {"state": 1} if with_more else {}
    answer = scan(encode_value({"messages": [{"message": payload, **more} for payload in payloads]}))
    assert read_page(answer) == payloads


@given(value=st.one_of(st.none(), st.integers(0, 9), st.binary(), st.lists(st.binary())))
def test_another_answer_has_no_messages(value: object) -> None:
    assert read_page(scan(encode_value({"others": value}))) == []
    assert read_page(scan(encode_value([value]))) == []
