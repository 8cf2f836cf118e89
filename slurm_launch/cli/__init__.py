"""The command line: parse, resolve, call, print. Heavy modules are imported only when they are needed."""
