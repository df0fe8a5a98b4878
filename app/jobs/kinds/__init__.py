"""The job kinds, a module each: its part of the object, what it declares, and what its base cannot know."""
