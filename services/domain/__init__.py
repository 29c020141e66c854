"""Frozen types that several services speak. Imports nothing but the standard library."""
