"""Devices of dynamic resource allocation: how many of which quota resource the pods of a Workload are charged for.

A claim asks for devices of classes, and a class counts as the configuration maps it. Imports no other room of
the engine but the options.
"""
