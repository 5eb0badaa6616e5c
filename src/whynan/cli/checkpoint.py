import click
@click.command()
def checkpoint() -> None:
    """x"""
