"""XML of strangers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.admin.errors import AdminRefused
from pairbus.broker.admin.markup import MAX_DEPTH, MAX_NODES, XmlNode, parse, render

BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE entry [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<entry>&b;</entry>"""
OUTSIDE = b'<!DOCTYPE entry [<!ENTITY x SYSTEM "file:///etc/passwd">]><entry>&x;</entry>'


def test_names_lose_their_namespace_whatever_the_prefix() -> None:
    root = parse(
        b'<n:entry xmlns:n="urn:a" xmlns:i="urn:b"><n:content i:type="x">  text </n:content></n:entry>'
    )
    content = root.find("content")
    assert root.name == "entry"
    assert content is not None
    assert (content.text, content.attributes) == ("  text ", {"type": "x"})
    assert root.text_of("missing") is None


@pytest.mark.parametrize("document", [BOMB, OUTSIDE, b"<!DOCTYPE entry><entry/>"])
def test_a_document_type_declaration_is_refused(document: bytes) -> None:
    with pytest.raises(AdminRefused, match="document type") as caught:
        parse(document)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "document",
    [b"", b"entry", b"<entry>", b"<a:entry/>", b"<entry>&nbsp;</entry>", b"<entry>\xff</entry>", b"<a/><b/>"],
)
def test_what_is_no_xml_is_refused(document: bytes) -> None:
    with pytest.raises(AdminRefused, match="XML") as caught:
        parse(document)
    assert caught.value.status == 400


def test_depth_and_number_of_elements_are_bounded() -> None:
    assert parse(b"<a>" * MAX_DEPTH + b"</a>" * MAX_DEPTH).name == "a"
    with pytest.raises(AdminRefused, match="too large"):
        parse(b"<a>" * (MAX_DEPTH + 1) + b"</a>" * (MAX_DEPTH + 1))
    with pytest.raises(AdminRefused, match="too large"):
        parse(b"<a>" + b"<b/>" * MAX_NODES + b"</a>")


@given(st.text(), st.text())
def test_text_and_attributes_survive_the_way_out_and_in(text: str, attribute: str) -> None:
    back = parse(render(XmlNode("a", text, {"b": attribute})))
    allowed = str.maketrans(
        {code: "\ufffd" for code in (*range(32), 0xFFFE, 0xFFFF) if chr(code) not in "\t\n\r"}
    )
    assert back.text == text.translate(allowed)
    assert back.attributes["b"] == attribute.translate(allowed)


def test_a_byte_order_mark_is_no_text() -> None:
    assert parse(b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?><a>b</a>").text == "b"
