"""As if the user had pressed Ctrl-C while the plugin was imported."""

raise KeyboardInterrupt
