"""Floor 7: the commands of `turnstile`. May import every floor below."""
