"""NamedTuple of the standard library, made without looking at its annotations.

typing.NamedTuple compiles every annotation that stands as text. No one here asks for them, and over all classes that
`explain` loads it took a tenth of the whole run (Python 3.11 to 3.13; 3.14 leaves them be).
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, object]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.pop("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body.pop("__module__"))  # noqa: PYI024 - what typing calls
            made.__annotations__ = fields
            for key, value in body.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Maker):
        """Base of a frozen record, as typing.NamedTuple is."""
