"""Measurements side by side, each printed as a ratio with its goal; README.md says how."""
