"""Keys: private files, public cards, and what is refused."""

import pytest

from fedbandit.federation.wire.keys import PartyKeys, PublicKeys, party_name, public_nkey, read_secret, write_secret


def test_keys_come_back_as_they_were_saved(tmp_path):
    keys = PartyKeys.generate()
    keys.save(tmp_path / "party.key")
    assert (tmp_path / "party.key").stat().st_mode & 0o777 == 0o600
    again = PartyKeys.load(tmp_path / "party.key")
    assert again == keys
    assert again.public("a", "silo") == keys.public("a", "silo")


def test_a_key_is_never_overwritten(tmp_path):
    PartyKeys.generate().save(tmp_path / "party.key")
    with pytest.raises(ValueError, match="never overwritten"):
        PartyKeys.generate().save(tmp_path / "party.key")


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    write_secret(tmp_path / "secret", b"x")
    (tmp_path / "secret").chmod(0o640)
    with pytest.raises(ValueError, match="chmod 600"):
        read_secret(tmp_path / "secret")


def test_a_damaged_key_file_is_refused(tmp_path):
    write_secret(tmp_path / "party.key", b'{"identity": "00"}')
    with pytest.raises(ValueError, match="identity must be 32 bytes"):
        PartyKeys.load(tmp_path / "party.key")


def test_public_keys_travel_as_plain_data():
    public = PartyKeys.generate().public("hospital-1", "silo")
    assert PublicKeys.from_dict(public.as_dict()) == public
    seeds = PartyKeys.generate().seeds
    assert not any(seed.hex() in str(public.as_dict()) for seed in seeds.values())


@pytest.mark.parametrize(
    "field, value", [("role", "boss"), ("identity", "00"), ("mlkem", "xyz"), ("extra", "1"), ("name", "a b")]
)
def test_a_wrong_card_is_refused(field, value):
    card = PartyKeys.generate().public("a", "silo").as_dict() | {field: value}
    with pytest.raises(ValueError):
        PublicKeys.from_dict(card)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "x" * 41, "ü"])
def test_names_that_would_be_unsafe_in_a_subject_are_refused(name):
    with pytest.raises(ValueError, match="name must be"):
        party_name(name)


def test_known_nkey():
    """An nkey of the NATS documentation, taken apart and put together again."""
    import base64

    known = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
    raw = base64.b32decode(known + "=" * (-len(known) % 8))[1:33]
    assert public_nkey(raw) == known
    with pytest.raises(ValueError, match="32 bytes"):
        public_nkey(raw[:31])
