"""The job kinds: the fields that are read, the declarations, and differences from the base class.

A kind is a module here. One that needs more than a module is a package, and so are kinds that share a base of their
own.
"""
