"""Side-by-side measurements, each printed as a ratio with its goal. README.md describes the method."""
