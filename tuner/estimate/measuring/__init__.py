"""Measuring sizes: `measuring_process` asks a child, `serve_orders`, which alone imports torch."""
