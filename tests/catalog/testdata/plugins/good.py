"""Functions that work."""


def score(text: str) -> dict[str, int]:
    """Count what there is to count."""
    return {"length": len(text)}


def greet(name: str, tone: str = "plain") -> str:
    """Greet somebody."""
    return f"{name}, {tone}"


def many(number: int) -> str:
    """Take what a prompt cannot give."""
    return "x" * number
