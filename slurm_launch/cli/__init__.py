"""The command line: parse, resolve, call, print. Nothing heavy is imported before it is needed."""
