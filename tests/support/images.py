"""Pictures in PNG, as the programs of the tests write them: 8 bits a channel, not interlaced."""

import collections
import struct
import zlib


def pixels(path):
    """Width, and the rows as bytes of RGB or RGBA; the number of channels."""
    with open(path, "rb") as f:
        data = f.read()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlaced
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    channels = 4 if colour == 6 else 3
    raw, row_length = zlib.decompress(packed), width * channels
    rows, above = [], bytearray(row_length)
    for y in range(height):
        begin = y * (row_length + 1)
        method, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + row_length])
        for i in range(row_length):
            left = row[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            if method == 1:
                row[i] = (row[i] + left) & 255
            elif method == 2:
                row[i] = (row[i] + above[i]) & 255
            elif method == 3:
                row[i] = (row[i] + (left + above[i]) // 2) & 255
            elif method == 4:
                guess = left + above[i] - corner
                best = min((abs(guess - left), 0, left), (abs(guess - above[i]), 1, above[i]), (abs(guess - corner), 2, corner))[2]
                row[i] = (row[i] + best) & 255
        rows.append(bytes(row))
        above = row
    return width, rows, channels


def colours(path):
    """How often each colour 0xRRGGBB is there; what can be seen through counts for nothing."""
    width, rows, channels = pixels(path)
    counts = collections.Counter()
    for row in rows:
        for i in range(0, width * channels, channels):
            if channels == 3 or row[i + 3] == 255:
                counts[row[i] << 16 | row[i + 1] << 8 | row[i + 2]] += 1
    return counts
