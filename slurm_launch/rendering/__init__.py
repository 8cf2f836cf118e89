"""Renders a spec as the text of a script. Pure: reads only the templates and writes nothing."""
