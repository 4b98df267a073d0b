"""Encoders, which keep no cache, and encoder-decoders, whose decoder also caches what it reads of the encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconstruct.planner.models.decoders import Trait, head_size_of, heads_of, kv_heads_of
from reconstruct.planner.models.layers import Attention, Geometry

if TYPE_CHECKING:
    from reconstruct.planner.models.layers import Shard
    from reconstruct.planner.models.view import View


def encoder_only(view: View, _shard: Shard, trait: Trait) -> Geometry:
    """BERT and its kind: bidirectional attention without a cache (0.32.0 encoder_only_attention.py)."""
    layers = ((),) * view.whole_number("num_hidden_layers")
    return Geometry(view, layers, heads_of(view), kv_heads_of(view), head_size_of(view), pipelines=trait.pipelines)


def whisper(view: View, _shard: Shard, _trait: Trait) -> Geometry:
    """Whisper: self attention and cross attention in every decoder layer (0.32.0 models/whisper.py)."""
    heads = view.positive("decoder_attention_heads")
    size = view.whole_number("d_model") // heads
    own = Attention(heads, heads, size)
    layers = ((own, own._replace(cross=True)),) * view.whole_number("decoder_layers")
    total = view.maybe_number("encoder_attention_heads") or heads
    return Geometry(view, layers, total, total, size, encoder_decoder=True, pipelines=False)
