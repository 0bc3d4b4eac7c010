"""Compressed arguments, in the form of GitLab's size limiter. [X-ZIP]"""

from __future__ import annotations

import binascii
import zlib
from base64 import b64encode

import msgspec

from jobwire.errors import InvalidArgument, MalformedPayload
from jobwire.protocol.payload import Job, decode, edit

__all__ = ["COMPRESSED", "MAX_INFLATED_BYTES", "ArgumentsTooLarge", "compress", "inflate"]

COMPRESSED = "compressed"
ORIGINAL_BYTES = "original_job_size_bytes"
MAX_INFLATED_BYTES = 32 * 1024 * 1024  # [X-ZIP-3]
_PIECE_BYTES = 1024 * 1024
_LEVEL = 5

_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ArgumentsTooLarge(InvalidArgument):
    """Arguments inflate to more bytes than this worker allows; another one may allow more."""


def inflate(job: Job) -> None:
    """Replace compressed arguments of a job by the original ones, in its fields only.

    [X-ZIP-1] [X-ZIP-6]

    Raises:
        InvalidArgument: They cannot be inflated. [X-ZIP-2]
        ArgumentsTooLarge: They are too large. [X-ZIP-3]
    """
    if job.fields[COMPRESSED] is None or job.fields[COMPRESSED] is False:
        return
    args = job.fields.get("args")
    if not isinstance(args, list) or len(args) != 1 or not isinstance(args[0], str):
        raise InvalidArgument("compressed args must be one string, the base64 text of zlib data")
    try:
        text = _inflated(binascii.a2b_base64(args[0].encode("ascii"), strict_mode=True))
        fields = decode(b'{"args":%b}' % text, job.queue).fields
    except ArgumentsTooLarge:
        raise
    except (ValueError, zlib.error, MalformedPayload) as error:
        raise InvalidArgument(f"compressed args cannot be read: {error}") from None
    if fields.keys() != {"args"} or not isinstance(fields["args"], list):
        raise InvalidArgument("compressed args must inflate to a JSON array")
    job.fields["args"] = fields["args"]
    job.fields.pop(COMPRESSED)
    job.fields.pop(ORIGINAL_BYTES, None)


def _inflated(data: bytes) -> bytes:
    """Return the inflated data; stops at the limit, so that a small text cannot fill memory.

    In pieces, because zlib needs twice the memory for a text that it inflates at once.
    """
    stream = zlib.decompressobj()
    pieces = []
    left = MAX_INFLATED_BYTES
    while piece := stream.decompress(data, _PIECE_BYTES):
        left -= len(piece)
        if left < 0:
            raise ArgumentsTooLarge(
                f"compressed args inflate to more than {MAX_INFLATED_BYTES} bytes"
            )
        pieces.append(piece)
        data = stream.unconsumed_tail
    if not stream.eof:
        raise ValueError("the zlib data is cut")
    if stream.unused_data:
        raise ValueError("data follows the end of the zlib data")
    return b"".join(pieces)


def compress(text: bytes, least: int) -> bytes:
    """Return a payload with compressed `args`, if their JSON has `least` bytes or more. [X-ZIP-5]

    A payload that has the field `compressed` stays as it is.
    """
    fields = _decode_raw(text)
    args = bytes(fields["args"])
    if len(args) < least or COMPRESSED in fields:
        return text
    encoded = b64encode(zlib.compress(args, _LEVEL)).decode()
    return edit(text, {"args": [encoded], COMPRESSED: True, ORIGINAL_BYTES: len(args)})
