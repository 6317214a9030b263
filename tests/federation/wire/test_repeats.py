"""When something is said again."""

from fedbandit.federation.wire.repeats import Repeats


def test_what_was_sent_is_due_again_after_a_while_under_another_id():
    now = [0.0]
    repeats: Repeats[int] = Repeats(10.0, lambda: now[0])
    assert (repeats.said(3), repeats.suffix(3)) == (False, "")
    repeats.done(3)
    assert (repeats.said(3), repeats.due(3), repeats.suffix(3)) == (True, False, ".1")
    now[0] = 10.5
    assert repeats.due(3)
    repeats.done(3)
    assert (repeats.due(3), repeats.suffix(3)) == (False, ".2")


def test_what_an_earlier_process_sent_is_due_after_a_while_too():
    now = [100.0]
    repeats: Repeats[str] = Repeats(10.0, lambda: now[0])
    assert not repeats.due("x")
    now[0] = 111.0
    assert repeats.due("x")
