"""Training that somebody disturbs at random for minutes on end: ``make soak``."""
