"""Where values come from: layers, project and profile files, imports of other tools' files, starter files."""
