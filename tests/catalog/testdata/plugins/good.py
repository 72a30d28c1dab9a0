"""Functions that work."""


def score(text: str) -> dict[str, int]:
    """Count."""
    return {"length": len(text)}


def greet(name: str, tone: str = "plain") -> str:
    """Greet somebody."""
    return f"{name}, {tone}"


def many(number: int) -> str:
    """Take a list, which prompts cannot pass."""
    return "x" * number
