"""The command line: thin click commands over the layers below. `main` is the group; each command has its module."""
