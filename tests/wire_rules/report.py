"""Rules, each with the source it was taken from, and the list of those that a request breaks."""

from __future__ import annotations

from attrs import define, field, frozen


@frozen
class Rule:
    """One thing that a provider demands of a request."""

    name: str
    """`book.rule`, such as `anthropic.roles`."""
    says: str
    source: str
    """Where it is written: an SDK's parameter type, a page of the vendor, or the words of a 400."""


@frozen
class Book:
    """The rules of one provider."""

    name: str
    rules: dict[str, Rule] = field(factory=dict)

    def rule(self, name: str, says: str, source: str) -> Rule:
        """Enter a rule; a name is given once."""
        full = f"{self.name}.{name}"
        if full in self.rules:
            raise ValueError(f"the rule {full} exists already")

        rule = Rule(full, says, source)
        self.rules[full] = rule
        return rule


@frozen
class Broken:
    """A rule, and where in the body it is broken."""

    rule: Rule
    where: str
    found: str

    def __str__(self) -> str:
        source = f"[{self.rule.name}; {self.rule.source}]"
        return f"{self.where}: {self.rule.says}; found {self.found} {source}"


class BrokenRequest(AssertionError):
    """A request that its provider would refuse, with every rule that it breaks."""

    def __init__(self, what: str, broken: list[Broken]) -> None:
        lines = "\n".join(f"  {one}" for one in broken)
        super().__init__(f"{what} breaks {len(broken)} rule(s):\n{lines}")
        self.broken = broken

    @property
    def rules(self) -> set[str]:
        """The names of the rules."""
        return {one.rule.name for one in self.broken}


@define
class Report:
    """Collects what one request breaks."""

    broken: list[Broken] = field(factory=list)

    def broke(self, rule: Rule, where: str, found: object = "") -> None:
        """Note that `rule` is broken at `where`, a path such as `messages[3].content[0].text`."""
        self.broken.append(Broken(rule, where or "body", shown(found)))

    def raise_if_broken(self, what: str) -> None:
        """Raise `BrokenRequest` where anything was noted."""
        if self.broken:
            raise BrokenRequest(what, self.broken)


def shown(found: object) -> str:
    """What was found, in at most 120 characters."""
    text = found if isinstance(found, str) else repr(found)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"
