"""The AppWrapper, and the pod templates inside the objects that it wraps."""
