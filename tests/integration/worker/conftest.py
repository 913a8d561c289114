"""What tests of workers have in common. It is described where it is made, in tests/support."""

from tests.support.device_leases import leases

__all__ = ["leases"]
