"""The AMQP 1.0 type system: values to bytes and back."""

from __future__ import annotations

from .decoding import decode, decode_exactly, skip
from .encoding import encode, encode_into

__all__ = ["decode", "decode_exactly", "encode", "encode_into", "skip"]
