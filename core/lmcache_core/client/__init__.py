"""The cache of another process, `lmcachectl serve`, behind the same face as one in this process."""
