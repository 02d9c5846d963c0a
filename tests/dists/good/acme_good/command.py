"""A sub-command of a plugin."""

import click


@click.command()
def hello() -> None:
    """Say hello."""
    click.echo("hello from acme-good")
