"""Follows every storage that torch code makes and lets go, so that a model of an allocator can follow suit."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from live_probe.scratch import rows_of, sort_scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_probe.allocator import Block, CachingAllocator

_SORTS = frozenset({torch.ops.aten.sort.default, torch.ops.aten.sort.stable})
_MATRICES = frozenset({torch.ops.aten.mm.default, torch.ops.aten.addmm.default})
_PRODUCTS = _MATRICES | {torch.ops.aten.bmm.default}
_WRITERS = frozenset(
    {
        torch.ops.aten.add_.Tensor, torch.ops.aten.copy_.default, torch.ops.aten.div_.Tensor, torch.ops.aten.fill_.Scalar,
        torch.ops.aten.mul_.Tensor, torch.ops.aten.silu_.default, torch.ops.aten.uniform_.default,
        torch.ops.aten.zero_.default,
    }
)  # fmt: skip
"""Operators that write into their first argument and give it back: on meta tensors they have nothing to do."""


class Listener(Protocol):
    """Told of operators that do more on a card than make their results."""

    def on_new_storage(self) -> None:
        """Hear of an operator that made a storage on the followed device."""

    def on_matrix_product(self) -> None:
        """Hear of a matrix product that is about to run."""


class _Held(NamedTuple):
    watch: weakref.ref[Any]
    block: Block


class StorageFollower(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves the base unannotated
    """Mirrors the life of every storage on one torch device type into a `CachingAllocator`.

    A storage is allocated when an operator first returns it and freed when torch drops it. Views and in-place
    results are recognised by their storage. Tensors made outside the mode are not followed.
    """

    def __init__(self, allocator: CachingAllocator, device_type: str, listener: Listener) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._allocator = allocator
        self._device_type = device_type
        self._listener = listener
        self._held: dict[int, _Held] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Have no guard against torch's compiler around every operator (torch 2.7 on).

        Nothing is compiled here, and the guard imports the compiler, which leaves a folder among the temporary files.
        """
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  whatever the operator gives
        """Run the operator and take note of the storages that are new."""
        if func in _PRODUCTS:
            self._listener.on_matrix_product()
        if func in _WRITERS and args[0].is_meta:
            return args[0]
        shapes_only = func in _MATRICES and args[0].is_meta
        out = _meta_product(args[-2], args[-1]) if shapes_only else func(*args, **(kwargs or {}))
        for leaf in (out,) if isinstance(out, torch.Tensor) else tree_leaves(out):
            if self._is_followed(leaf):
                self._follow(leaf.untyped_storage())
        if func in _SORTS and self._is_followed(args[0]):
            self._take_scratch(args[0])
        return out

    def _is_followed(self, leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.device.type == self._device_type and leaf.layout == torch.strided

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata  # noqa: SLF001  the only name a storage has
        if key in self._held or storage.nbytes() == 0:
            return
        block = self._allocator.malloc(storage.nbytes())
        self._held[key] = _Held(weakref.ref(storage, lambda _gone: self._drop(key)), block)
        self._listener.on_new_storage()

    def _drop(self, key: int) -> None:
        self._allocator.free(self._held.pop(key).block)

    def _take_scratch(self, tensor: torch.Tensor) -> None:
        rows, columns = rows_of(tuple(tensor.shape))
        blocks = [self._allocator.malloc(size) for size in sort_scratch(rows, columns, tensor.element_size())]
        for block in blocks:
            self._allocator.free(block)


def _meta_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Give the shape of a matrix product: torch's own kernel takes long over it, or loads torch's compiler."""
    return torch.empty(left.shape[0], right.shape[1], dtype=left.dtype, device=left.device)
