"""The bytes of messages: canonical, complete, and refused when they are anything else."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedbandit.federation.wire import heads
from fedbandit.federation.wire.messages import MessageError, decode, decode_stream, encode, pack, unpack
from fedbandit.federation.wire.parcels import Holds, Mixed, Outcome, Parcel, SignedOutcome
from tests.federation.small import small_plan
from tests.memory import at_most

ARRAYS = st.sampled_from([np.int64, np.uint64, np.float64]).flatmap(
    lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@given(st.lists(ARRAYS, max_size=4))
def test_arrays_come_back_bit_for_bit(arrays):
    back = decode(encode(arrays))
    assert [a.dtype for a in back] == [a.dtype for a in arrays]
    assert [a.shape for a in back] == [a.shape for a in arrays]
    assert [a.tobytes() for a in back] == [a.tobytes() for a in arrays]


def test_known_bytes():
    message = encode([np.array([1, -2], dtype=np.int64)])
    assert message.hex() == "46424d31" + "01000000" + "0001" + "02000000" + "0100000000000000" + "feffffffffffffff"


def test_memory_layout_does_not_change_the_bytes():
    matrix = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert encode([np.asfortranarray(matrix)]) == encode([matrix])
    assert encode([matrix.astype(">f8")]) == encode([matrix])


def test_the_length_depends_on_the_shape_only():
    sizes = {len(encode([np.full(65, value, dtype=np.int64)])) for value in (0, 1, -1, 2**62)}
    assert len(sizes) == 1


@pytest.mark.parametrize("data", [
    b"", b"FBM", b"FBM2" + bytes(10), b"FBM1" + b"\xff" * 4, encode([np.zeros(3)])[:-1], encode([np.zeros(3)]) + b"x",
    b"FBM1\x01\x00\x00\x00\x09\x00", b"FBM1\x01\x00\x00\x00\x00\xff", b"FBM1\x01\x00\x00\x00\x00\x02" + b"\xff" * 8,
])  # fmt: skip
def test_what_is_not_a_message_is_refused(data):
    with pytest.raises(MessageError):
        decode(data)


def test_a_parse_bomb_is_refused_before_anything_is_made_of_it():
    """Two million empty arrays in 11 MB took half a minute and a gigabyte."""
    bomb = b"FBM1" + struct.pack("<I", 2_000_000) + b"\x00\x01\x00\x00\x00\x00" * 2_000_000
    packed = b"FBM1" + struct.pack("<I", 2_000_000) + bytes(8 * 2_000_000)
    within = pack([bytes(208), bomb])
    plan = small_plan()
    protocol = plan.protocol
    for attempt in (
        lambda: decode(bomb, [(3,)]),
        lambda: decode(bomb, most=2),
        lambda: unpack(packed, most=3),
        lambda: Parcel.decode(packed, protocol, "mixer"),
        lambda: Parcel.decode(within, protocol, "mixer"),
        lambda: Mixed.decode(packed, plan),
        lambda: Holds.decode(packed, plan),
        lambda: SignedOutcome.decode(packed, plan),
        lambda: Outcome.decode(bomb, plan),
    ):
        with at_most(len(packed) + 2**20), pytest.raises(MessageError):
            attempt()


def test_an_empty_array_of_an_absurd_shape_is_refused():
    for side in (2**32 - 1, 2**20):  # one side alone may be long; all of them together are more than an array can have
        shape = struct.pack("<BB8I", 0, 8, 0, *([side] * 7))
        with pytest.raises(MessageError, match="empty array"):
            decode(b"FBM1" + struct.pack("<I", 1) + shape)


@pytest.mark.parametrize("arrays", [
    [], [np.zeros(0, dtype=np.int64)], [np.zeros(2, dtype=np.int64)], [np.array(3)], [np.array([3.0])],
    [np.array([-1])],
])  # fmt: skip
def test_what_is_not_a_state_is_refused(arrays):
    with pytest.raises(MessageError, match="number of steps"):
        decode_stream(encode(arrays))


def test_a_model_follows_a_whole_hash():
    """One of another length was taken where the silo had not seen the model before it."""
    outcome = Outcome(np.zeros(small_plan().protocol.width), np.ones(3, dtype=np.int64))
    for previous in (b"", b"x", bytes(33)):
        head = heads.NONE._replace(length=1, hash=heads.link(previous, outcome.encode()))
        with pytest.raises(MessageError, match="head does not belong"):
            SignedOutcome.decode(SignedOutcome(outcome, previous, head).encode(), small_plan())


def test_other_types_and_shapes_are_refused():
    with pytest.raises(MessageError, match="int32"):
        encode([np.zeros(3, dtype=np.int32)])
    with pytest.raises(MessageError, match="shapes"):
        decode(encode([np.zeros(3)]), [(4,)])


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_packed_bytes_come_back(parts):
    assert unpack(pack(parts)) == parts


@pytest.mark.parametrize("data", [b"", pack([b"ab"])[:-1], pack([b"ab"]) + b"x", b"FBM1" + b"\xff" * 12])
def test_what_is_not_packed_is_refused(data):
    with pytest.raises(MessageError):
        unpack(data)
