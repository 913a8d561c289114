"""The version, in one place."""

__version__ = "0.1.0"


def installed(package: str) -> str | None:
    """The version of a package, which is not imported for it; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
