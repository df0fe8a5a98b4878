"""The job kinds, one module each: the fields that are read, the declarations, and differences from the base class."""
