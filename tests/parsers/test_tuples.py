"""Our NamedTuple against the standard library's."""

from __future__ import annotations

import pickle
import typing

import pytest

from parsers.tuples import NamedTuple


class Ours(NamedTuple):
    """A record."""

    low: int
    name: str = "x"

    @property
    def twice(self) -> int:
        """Give twice the low."""
        return 2 * self.low

    @classmethod
    def exactly(cls, value: int) -> Ours:
        return cls(value)


class Theirs(typing.NamedTuple):
    """A record."""

    low: int
    name: str = "x"


def test_a_record_is_the_librarys():
    ours, theirs = Ours(3), Theirs(3)
    assert ours == theirs == (3, "x")
    assert repr(ours).removeprefix("Ours") == repr(theirs).removeprefix("Theirs")
    assert ours._replace(name="y")._asdict() == theirs._replace(name="y")._asdict()
    assert (Ours._fields, Ours._field_defaults, Ours.__doc__) == (
        Theirs._fields,
        Theirs._field_defaults,
        Theirs.__doc__,
    )
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert (Ours.__module__, Ours.__qualname__) == (__name__, "Ours")
    assert ours.twice == 6
    assert Ours.exactly(4).low == 4
    assert hash(ours) == hash(theirs)


def test_a_record_is_frozen_and_has_all_fields():
    with pytest.raises(AttributeError):
        Ours(3).low = 4
    with pytest.raises(TypeError):
        Ours()
    assert pickle.loads(pickle.dumps(Ours(3))) == Ours(3)
