"""The shapes that job kinds have: a kind is a subclass of one of these, with little but data of its own."""
