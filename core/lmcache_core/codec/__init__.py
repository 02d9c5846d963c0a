"""A chunk as it travels: header, checksum, payload."""
