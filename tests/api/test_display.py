import pytest

import segmentlog
from segmentlog.api.display import SHOWN_ROWS, html_table

HOSTILE = "<script>alert('x')</script>\u202e&"


def test_every_text_is_escaped_and_short() -> None:
    html = html_table(HOSTILE, [HOSTILE], [(HOSTILE,), (None,), (b"<b>",), ("a" * 1000,)], 4)
    assert "<script" not in html
    assert "<b>" not in html
    assert "\u202e" not in html
    assert html.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;·&amp;") == 3
    assert "<td></td>" in html
    assert "a" * 60 not in html
    assert "more" not in html


def test_rows_that_are_left_out_are_counted() -> None:
    html = html_table("", ["a", "b"], ((each, each) for each in range(100)), 100)
    assert html.count("<td>") == 2 * SHOWN_ROWS
    assert f'<td colspan="2">and {100 - SHOWN_ROWS} more</td>' in html


def test_results_show_themselves(store: segmentlog.Store) -> None:
    for shown, texts in (
        (store, ("broker-a", "orders", "payments", "400")),
        (store.topics(), ("Topics of", "isSystem", "payments")),
        (store.lag("etl"), ("Lag of etl", "80")),
        (store.segments(), ("baseOffset", "32768")),
        (store.scan("orders", columns=["keys", "body"], sql="KEYS = 'key-7'"), ("keys, body", "queueId", "100")),
        (store.find("orders", keys=["key-7", "none"]), ("2 keys", "1 rows", "key-7", "asked")),
    ):
        html = shown._repr_html_()
        assert html.startswith("<table><caption>")
        for text in texts:
            assert text in html


@pytest.mark.parametrize("name", ["topics", "queues", "groups", "segments"])
def test_results_have_a_repr(store: segmentlog.Store, name: str) -> None:
    table = getattr(store, name)()
    assert repr(table).startswith(f"<{name.title() if name != 'groups' else 'Consumer groups'} of /")
    assert f"{table.count()} rows>" in repr(table)
    assert repr(store.find("orders", keys="key-7")).startswith("<Lookup of 1 keys: 1 rows (")
