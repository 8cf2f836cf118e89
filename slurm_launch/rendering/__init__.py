"""From a spec to the text of a script. Pure: reads no file but the templates and writes none."""
