"""The command ``lmcachectl``, one module per sub-command, each imported when it is run."""
