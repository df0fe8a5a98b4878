"""Base classes of job kinds: a kind subclasses one of them and adds little but data."""
