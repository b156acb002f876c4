"""Protocols and plain data: the shapes that every other part of Seamline is built from."""
