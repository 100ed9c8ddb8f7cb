"""A second, deliberately plain implementation of the rules of Shuiyu.

It shares no code with the package and is kept only to test it: a test plays the same deal
through both and compares everything.  It follows the text of docs/rules.md section by section
("§" in the comments), with literal if/else code and no tables, trees or shortcuts.  Nothing
here is meant to be fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# ----------------------------------------------------------------------------------------
# §7 Actions: the index is the action id.
# ----------------------------------------------------------------------------------------

ACTION_NAMES: list[str] = [
    "SPLIT_0",  # 0
    "SPLIT_1",  # 1
    "SPLIT_2",  # 2
    "OPEN",  # 3
    "COVER",  # 4
    "FORCE",  # 5
    "ATTACK",  # 6
    "REQUEST_PUSH",  # 7
    "KILL",  # 8
    "PUSH",  # 9
    "SURRENDER",  # 10
    "LOOK",  # 11
    "FOLD",  # 12
    "DECLINE",  # 13
    "ACCEPT",  # 14
    "DEMAND",  # 15
    "GRANT",  # 16
    "REFUSE",  # 17
    "BELIEVE",  # 18
    "DOUBT",  # 19
    "PAY",  # 20
    "CONTEST",  # 21
    "CONCEDE",  # 22
    "STAKE_1",  # 23
    "STAKE_2",  # 24
    "STAKE_3",  # 25
    "STAKE_4",  # 26
    "STAKE_5",  # 27
]

# ----------------------------------------------------------------------------------------
# §2 Cards
# ----------------------------------------------------------------------------------------

# Rank order 2 < 3 < ... < K < A, suit order diamonds < clubs < hearts < spades.
RANKS: str = "23456789TJQKA"
SUITS: str = "dchs"


def rank_of(card: int) -> int:
    """§2: 0 for a two, ..., 12 for an ace."""
    return card // 4


def suit_of(card: int) -> int:
    """§2: 0 diamonds, 1 clubs, 2 hearts, 3 spades."""
    return card % 4


def card_text(card: int) -> str:
    """§2: the text form, such as As, Td, 2c."""
    return RANKS[rank_of(card)] + SUITS[suit_of(card)]


def card_code(text: str) -> int:
    """§2: the code of a card in text form."""
    return RANKS.index(text[0]) * 4 + SUITS.index(text[1])


def deck_cards(ranks: int, suits: int) -> list[int]:
    """§2: the first `ranks` of A, 2, 3, ..., K and the first `suits` of s, h, c, d."""
    if ranks < 1 or ranks > 13:
        raise ValueError("ranks must be 1 to 13")
    if suits < 1 or suits > 4:
        raise ValueError("suits must be 1 to 4")
    cards = []
    for rank in "A23456789TJQK"[:ranks]:
        for suit in "shcd"[:suits]:
            cards.append(card_code(rank + suit))
    cards.sort()
    return cards


def points(card: int) -> int:
    """§2: A is 1, 2-9 their face, 10/J/Q/K are 10."""
    rank = RANKS[rank_of(card)]
    if rank == "A":
        return 1
    if rank == "T":
        return 10
    if rank == "J":
        return 10
    if rank == "Q":
        return 10
    if rank == "K":
        return 10
    return int(rank)


# ----------------------------------------------------------------------------------------
# §3 Hands, groups, splits
# ----------------------------------------------------------------------------------------


def sort_hand(hand: Sequence[int]) -> list[int]:
    """§3: from highest to lowest, by rank, then suit (which is the order of the codes)."""
    return sorted(hand, key=lambda card: (rank_of(card), suit_of(card)), reverse=True)


def special(hand: Sequence[int]) -> int:
    """§3 Specials: 0 ordinary, 1 Shuiyu (two different pairs), 2 Supreme (four of a kind)."""
    r0, r1, r2, r3 = [rank_of(card) for card in sort_hand(hand)]
    if r0 == r1 and r1 == r2 and r2 == r3:
        return 2
    # The ranks are in order, so two different pairs can only lie side by side.
    if r0 == r1 and r2 == r3 and r1 != r2:
        return 1
    return 0


def groups(hand: Sequence[int], split: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """§3: split k puts c0 with c(k+1); the group of c0 comes first."""
    c0, c1, c2, c3 = sort_hand(hand)
    if split == 0:
        return (c0, c1), (c2, c3)
    if split == 1:
        return (c0, c2), (c1, c3)
    if split == 2:
        return (c0, c3), (c1, c2)
    raise ValueError(f"no such split: {split}")


def legal_splits(hand: Sequence[int]) -> list[int]:
    """§3 Specials: a special may only be split into its pairs."""
    kind = special(hand)
    if kind == 1:
        return [0]
    if kind == 2:
        return [0, 1, 2]
    return [0, 1, 2]


def is_pair(group: Sequence[int]) -> bool:
    """§3: two cards of one rank."""
    return rank_of(group[0]) == rank_of(group[1])


def group_points(group: Sequence[int]) -> int:
    """§3: the sum modulo 10 (asked only of groups that are no pair)."""
    return (points(group[0]) + points(group[1])) % 10


def top_card(group: Sequence[int]) -> int:
    """§3: the higher card of a group, by rank, then suit."""
    return sort_hand(group)[0]


def compare_numbers(a: int, b: int) -> int:
    """-1, 0 or 1 as a is below, equal to or above b."""
    if a < b:
        return -1
    if a > b:
        return 1
    return 0


def compare_top_cards(a: Sequence[int], b: Sequence[int]) -> int:
    """§3 `card`: the higher top card wins, by rank, then by suit; the lower never counts."""
    by_rank = compare_numbers(rank_of(top_card(a)), rank_of(top_card(b)))
    if by_rank != 0:
        return by_rank
    return compare_numbers(suit_of(top_card(a)), suit_of(top_card(b)))


def compare_groups(a: Sequence[int], b: Sequence[int], tie_break: str) -> int:
    """§3 Strength of a group: -1, 0, 1 as a is weaker than, tied with, stronger than b."""
    if tie_break != "card" and tie_break != "next_group":
        raise ValueError(f"no such tie_break: {tie_break}")

    # Both: every pair is above every number of points.
    if is_pair(a) and not is_pair(b):
        return 1
    if is_pair(b) and not is_pair(a):
        return -1

    if is_pair(a) and is_pair(b):
        if tie_break == "card":
            return compare_top_cards(a, b)
        # next_group: pairs by rank, no suits.
        return compare_numbers(rank_of(a[0]), rank_of(b[0]))

    by_points = compare_numbers(group_points(a), group_points(b))
    if by_points != 0:
        return by_points
    if tie_break == "card":
        return compare_top_cards(a, b)
    # next_group: no top card, so equal points tie.
    return 0


def head_and_tail(
    hand: Sequence[int], split: int, tie_break: str
) -> tuple[tuple[int, int], tuple[int, int]]:
    """§3 Head and tail: the stronger and the weaker group; tied, the one with c0 is the head."""
    first, second = groups(hand, split)
    order = compare_groups(first, second, tie_break)
    if order > 0:
        return first, second
    if order < 0:
        return second, first
    return first, second


def compare_splits(
    dealer_hand: Sequence[int],
    dealer_split: int,
    punter_hand: Sequence[int],
    punter_split: int,
    tie_break: str,
) -> str:
    """§3 Outcome of a comparison of two ordinary splits: "dealer", "push" or "punter"."""
    dealer_head, dealer_tail = head_and_tail(dealer_hand, dealer_split, tie_break)
    punter_head, punter_tail = head_and_tail(punter_hand, punter_split, tie_break)
    # 1: the dealer's is greater; -1: the punter's is greater; 0: tied.
    head = compare_groups(dealer_head, punter_head, tie_break)
    tail = compare_groups(dealer_tail, punter_tail, tie_break)

    # Both tied: the dealer wins.
    if head == 0 and tail == 0:
        return "dealer"
    # A tied group is void and the other decides.
    if head == 0:
        if tail > 0:
            return "dealer"
        return "punter"
    if tail == 0:
        if head > 0:
            return "dealer"
        return "punter"
    # Both greater: that side wins; one each: push.
    if head > 0 and tail > 0:
        return "dealer"
    if head < 0 and tail < 0:
        return "punter"
    return "push"


def compare_hands(
    dealer_hand: Sequence[int],
    dealer_split: int,
    punter_hand: Sequence[int],
    punter_split: int,
    tie_break: str,
) -> str:
    """§3, specials included: "dealer", "push" or "punter"."""
    dealer_special = special(dealer_hand)
    punter_special = special(punter_hand)

    # Supreme beats Shuiyu beats everything else, whatever the groups.
    if dealer_special > punter_special:
        return "dealer"
    if punter_special > dealer_special:
        return "punter"

    # Supreme against Supreme: by rank.
    if dealer_special == 2 and punter_special == 2:
        if rank_of(dealer_hand[0]) > rank_of(punter_hand[0]):
            return "dealer"
        return "punter"

    # Shuiyu against Shuiyu, and everything else: compared as ordinary splits.
    return compare_splits(dealer_hand, dealer_split, punter_hand, punter_split, tie_break)


# ----------------------------------------------------------------------------------------
# §6 RuleSet
# ----------------------------------------------------------------------------------------


def check_rules(rules: dict[str, Any]) -> None:
    """§6: every field is there and holds one of its values."""
    if len(rules["declarations"]) == 0:
        raise ValueError("declarations must not be empty")
    for name in rules["declarations"]:
        if name not in ("OPEN", "COVER", "FORCE", "ATTACK", "REQUEST_PUSH"):
            raise ValueError(f"no such declaration: {name}")
    if rules["tie_break"] not in ("card", "next_group"):
        raise ValueError("tie_break")
    if rules["surrender_to_open"] not in (True, False):
        raise ValueError("surrender_to_open")
    if rules["attack_accept"] not in (True, False):
        raise ValueError("attack_accept")
    if rules["attack_on_push"] not in (-2, 0):
        raise ValueError("attack_on_push")
    if rules["force_on_push"] not in (-3, 0):
        raise ValueError("force_on_push")
    if rules["doubted_push_when_dealer_wins"] not in (-2, 2):
        raise ValueError("doubted_push_when_dealer_wins")
    if rules["specials"] not in ("declared", "at_showdown"):
        raise ValueError("specials")
    if rules["cover_lost_to_special"] not in (1, 2):
        raise ValueError("cover_lost_to_special")
    if rules["declare"] not in ("simultaneous", "in_turn"):
        raise ValueError("declare")
    if rules["max_stake"] not in (1, 2, 3, 4, 5):
        raise ValueError("max_stake")
    deck_cards(rules["deck"]["ranks"], rules["deck"]["suits"])


# ----------------------------------------------------------------------------------------
# §4 A deal, phase by phase
# ----------------------------------------------------------------------------------------


class PlainDeal:
    """One deal of the game.

    The whole state is in the lists of what each seat has chosen so far (None: not yet).
    Which phase it is, whose turn, and who may see what is worked out from them each time.
    With max_stake 1 nobody picks a stake, so `stakes` stays all None and counts as 1.
    """

    def __init__(
        self,
        num_players: int,
        rules: dict[str, Any],
        hands: list[list[int]],
        dealer: int,
        reward: str = "transfer",
    ) -> None:
        check_rules(rules)
        # §4: seats 0 ... n-1, 2 <= n <= 13.
        if num_players < 2 or num_players > 13:
            raise ValueError("2 to 13 seats")
        # §2: a deck seats at most floor(ranks * suits / 4).
        if num_players > rules["deck"]["ranks"] * rules["deck"]["suits"] // 4:
            raise ValueError("the deck is too small for so many seats")
        if dealer < 0 or dealer >= num_players:
            raise ValueError("no such dealer")
        if reward not in ("transfer", "drinks"):
            raise ValueError("reward")
        if len(hands) != num_players:
            raise ValueError("one hand for each seat")
        deck = deck_cards(rules["deck"]["ranks"], rules["deck"]["suits"])
        dealt: list[int] = []
        for hand in hands:
            if len(hand) != 4:
                raise ValueError("each seat holds four cards")
            for card in hand:
                if card not in deck:
                    raise ValueError(f"not in the deck: {card}")
                if card in dealt:
                    raise ValueError(f"dealt twice: {card}")
                dealt.append(card)

        self.num_players = num_players
        self.rules = rules
        self.dealer = dealer
        self.reward = reward
        self.hands: list[list[int]] = [sort_hand(hand) for hand in hands]
        self.stakes: list[int | None] = [None] * num_players
        self.splits: list[int | None] = [None] * num_players
        self.declarations: list[str | None] = [None] * num_players
        self.calls: list[str | None] = [None] * num_players
        self.replies: list[str | None] = [None] * num_players
        self.force_splits: list[int | None] = [None] * num_players

    # ---- who is who ---------------------------------------------------------------------

    def punters(self) -> list[int]:
        """§4: the punters in seat order, which starts left of the dealer."""
        order = []
        seat = (self.dealer + 1) % self.num_players
        while seat != self.dealer:
            order.append(seat)
            seat = (seat + 1) % self.num_players
        return order

    # ---- §4.1 stake ---------------------------------------------------------------------

    def stakes_done(self) -> bool:
        """Nothing is left to stake, so the cards have been dealt."""
        if self.rules["max_stake"] == 1:
            return True
        for punter in self.punters():
            if self.stakes[punter] is None:
                return False
        return True

    # ---- §4.2 arrange -------------------------------------------------------------------

    def splits_done(self) -> bool:
        """The dealer and every punter have picked a split."""
        for seat in range(self.num_players):
            if self.splits[seat] is None:
                return False
        return True

    # ---- §4.3 specials ------------------------------------------------------------------

    def specials_were_declared(self) -> bool:
        """Phase 3 has happened in this deal."""
        if self.rules["specials"] != "declared":
            return False
        return self.splits_done()

    def decided_in_phase_3(self, punter: int) -> bool:
        """Whether phase 3 decided this punter's contest."""
        if not self.specials_were_declared():
            return False
        # The dealer has one: every contest is decided now.
        if special(self.hands[self.dealer]) > 0:
            return True
        # He has none: each punter with a special has won its contest.
        if special(self.hands[punter]) > 0:
            return True
        return False

    # ---- §4.4 declare -------------------------------------------------------------------

    def declarations_done(self) -> bool:
        """Each punter whose contest phase 3 left undecided has declared."""
        if not self.splits_done():
            return False
        for punter in self.punters():
            if self.decided_in_phase_3(punter):
                continue
            if self.declarations[punter] is None:
                return False
        return True

    def declaration_is_public(self, punter: int) -> bool:
        """Everybody knows what this punter declared."""
        if self.declarations[punter] is None:
            return False
        # in_turn: each is seen at once.
        if self.rules["declare"] == "in_turn":
            return True
        # simultaneous: nobody sees a declaration until the last one is made.
        return self.declarations_done()

    def is_face_up(self, punter: int) -> bool:
        """OPEN and FORCE lay the hand and its split face up; the others stay face down."""
        if not self.declaration_is_public(punter):
            return False
        if self.declarations[punter] == "OPEN":
            return True
        if self.declarations[punter] == "FORCE":
            return True
        return False

    # ---- §4.5 contests ------------------------------------------------------------------

    def contests_in_order(self) -> list[int]:
        """First all OPEN, then REQUEST_PUSH, then COVER, then ATTACK, in seat order in each."""
        order = []
        for punter in self.punters():
            if self.declarations[punter] == "OPEN":
                order.append(punter)
        for punter in self.punters():
            if self.declarations[punter] == "REQUEST_PUSH":
                order.append(punter)
        for punter in self.punters():
            if self.declarations[punter] == "COVER":
                order.append(punter)
        for punter in self.punters():
            if self.declarations[punter] == "ATTACK":
                order.append(punter)
        return order

    def force_contests_in_order(self) -> list[int]:
        """§4.6: the FORCE contests in seat order."""
        order = []
        for punter in self.punters():
            if self.declarations[punter] == "FORCE":
                order.append(punter)
        return order

    # ---- the contest tree of §5: which leaf ----------------------------------------------

    def has_reply(self, punter: int) -> bool:
        """§5: whether the dealer's call in this contest is one that the punter answers."""
        declaration = self.declarations[punter]
        call = self.calls[punter]
        if declaration == "OPEN":
            if call == "KILL":
                return True
            if call == "PUSH":
                return True
        if declaration == "REQUEST_PUSH":
            if call == "REFUSE":
                return True
        if declaration == "ATTACK":
            if call == "DEMAND":
                return True
        return False

    def decided(self, punter: int) -> str | None:
        """None, "special", "agreed" (no comparison) or "compared"."""
        if punter == self.dealer:
            return None
        if self.decided_in_phase_3(punter):
            return "special"

        declaration = self.declarations[punter]
        call = self.calls[punter]
        reply = self.replies[punter]

        if declaration is None:
            return None

        if declaration == "OPEN":
            if call == "KILL":
                if reply == "BELIEVE":
                    return "agreed"
                if reply == "DOUBT":
                    return "compared"
            if call == "PUSH":
                if reply == "BELIEVE":
                    return "agreed"
                if reply == "DOUBT":
                    return "compared"
            if call == "SURRENDER":
                return "agreed"

        if declaration == "REQUEST_PUSH":
            if call == "GRANT":
                return "agreed"
            if call == "REFUSE":
                if reply == "CONCEDE":
                    return "agreed"
                if reply == "CONTEST":
                    return "compared"

        if declaration == "COVER":
            if call == "FOLD":
                return "agreed"
            if call == "LOOK":
                return "compared"

        if declaration == "ATTACK":
            if call == "DECLINE":
                return "agreed"
            if call == "ACCEPT":
                return "compared"
            if call == "DEMAND":
                if reply == "PAY":
                    return "agreed"
                if reply == "CONTEST":
                    return "compared"

        if declaration == "FORCE":
            if self.force_splits[punter] is not None:
                return "compared"

        return None

    # ---- whose turn ---------------------------------------------------------------------

    def phase(self) -> str:
        """ "stake", "arrange", "declare", "call", "reply", "rearrange" or "over"."""
        # §4.1
        if not self.stakes_done():
            return "stake"
        # §4.2
        if not self.splits_done():
            return "arrange"
        # §4.3 asks nobody. §4.4
        if not self.declarations_done():
            return "declare"
        # §4.5
        for punter in self.contests_in_order():
            if self.calls[punter] is None:
                return "call"
            if self.has_reply(punter) and self.replies[punter] is None:
                return "reply"
        # §4.6
        for punter in self.force_contests_in_order():
            if self.force_splits[punter] is None:
                return "rearrange"
        # §4.7 asks nobody.
        return "over"

    @property
    def over(self) -> bool:
        """Whether the deal is over."""
        return self.phase() == "over"

    def contest(self) -> int | None:
        """The punter whose contest is being decided (phases call, reply, rearrange)."""
        phase = self.phase()
        if phase == "call" or phase == "reply":
            for punter in self.contests_in_order():
                if self.decided(punter) is None:
                    return punter
        if phase == "rearrange":
            for punter in self.force_contests_in_order():
                if self.decided(punter) is None:
                    return punter
        return None

    def seat(self) -> int | None:
        """Who must act, None when the deal is over."""
        phase = self.phase()
        if phase == "stake":
            # §4.1: each punter in seat order.
            for punter in self.punters():
                if self.stakes[punter] is None:
                    return punter
        if phase == "arrange":
            # §4.2: the dealer, then each punter.
            if self.splits[self.dealer] is None:
                return self.dealer
            for punter in self.punters():
                if self.splits[punter] is None:
                    return punter
        if phase == "declare":
            # §4.4: each punter whose contest is undecided.
            for punter in self.punters():
                if self.decided_in_phase_3(punter):
                    continue
                if self.declarations[punter] is None:
                    return punter
        if phase == "call":
            # §4.5: in each the dealer calls ...
            return self.dealer
        if phase == "reply":
            # §4.5: ... and the punter replies at once.
            return self.contest()
        if phase == "rearrange":
            # §4.6: the dealer picks the split.
            return self.dealer
        return None

    # ---- legal actions ------------------------------------------------------------------

    def legal_names(self) -> list[str]:
        """The names of the legal actions, in any order."""
        phase = self.phase()
        names: list[str] = []

        if phase == "stake":
            # §4.1: 1 ... max_stake.
            for stake in range(1, self.rules["max_stake"] + 1):
                names.append(f"STAKE_{stake}")
            return names

        if phase == "arrange":
            seat = self.seat()
            assert seat is not None
            for split in legal_splits(self.hands[seat]):
                names.append(f"SPLIT_{split}")
            return names

        if phase == "declare":
            # §5: any is legal whatever the hand; §6: only those that the rules have.
            for name in ("OPEN", "COVER", "FORCE", "ATTACK", "REQUEST_PUSH"):
                if name in self.rules["declarations"]:
                    names.append(name)
            return names

        if phase == "call":
            # §5, second column.
            punter = self.contest()
            assert punter is not None
            declaration = self.declarations[punter]
            if declaration == "OPEN":
                names.append("KILL")
                names.append("PUSH")
                if self.rules["surrender_to_open"]:
                    names.append("SURRENDER")
            if declaration == "REQUEST_PUSH":
                names.append("GRANT")
                names.append("REFUSE")
            if declaration == "COVER":
                names.append("FOLD")
                names.append("LOOK")
            if declaration == "ATTACK":
                names.append("DECLINE")
                if self.rules["attack_accept"]:
                    names.append("ACCEPT")
                names.append("DEMAND")
            return names

        if phase == "reply":
            # §5, third column.
            punter = self.contest()
            assert punter is not None
            call = self.calls[punter]
            if call == "KILL":
                names.append("BELIEVE")
                names.append("DOUBT")
            if call == "PUSH":
                names.append("BELIEVE")
                names.append("DOUBT")
            if call == "REFUSE":
                names.append("CONCEDE")
                names.append("CONTEST")
            if call == "DEMAND":
                names.append("PAY")
                names.append("CONTEST")
            return names

        if phase == "rearrange":
            # §4.6, and §3: a special only into its pairs, also when rearranging.
            for split in legal_splits(self.hands[self.dealer]):
                names.append(f"SPLIT_{split}")
            return names

        return names

    def legal(self) -> list[int]:
        """The ids of the legal actions, ascending; none when the deal is over."""
        return sorted(ACTION_NAMES.index(name) for name in self.legal_names())

    def apply(self, action: int) -> None:
        """Take the action for the seat whose turn it is."""
        if action not in self.legal():
            raise ValueError(f"illegal action {action} in phase {self.phase()}")
        name = ACTION_NAMES[action]
        phase = self.phase()
        seat = self.seat()
        assert seat is not None

        if phase == "stake":
            self.stakes[seat] = int(name.removeprefix("STAKE_"))
        elif phase == "arrange":
            self.splits[seat] = int(name.removeprefix("SPLIT_"))
        elif phase == "declare":
            self.declarations[seat] = name
        elif phase == "call":
            punter = self.contest()
            assert punter is not None
            self.calls[punter] = name
        elif phase == "reply":
            self.replies[seat] = name
        elif phase == "rearrange":
            punter = self.contest()
            assert punter is not None
            self.force_splits[punter] = int(name.removeprefix("SPLIT_"))

    # ---- §5 payoffs ---------------------------------------------------------------------

    def outcome(self, punter: int) -> str:
        """The comparison in this punter's contest: "dealer", "push" or "punter"."""
        # §4.6: in a FORCE contest the dealer's new split counts, elsewhere his committed one.
        if self.declarations[punter] == "FORCE":
            dealer_split = self.force_splits[punter]
        else:
            dealer_split = self.splits[self.dealer]
        punter_split = self.splits[punter]
        assert dealer_split is not None
        assert punter_split is not None
        return compare_hands(
            self.hands[self.dealer],
            dealer_split,
            self.hands[punter],
            punter_split,
            self.rules["tie_break"],
        )

    def special_payoff(self, punter: int) -> int:
        """§5, last row: +-2 / +-4 by the higher special, 0 on a push."""
        result = self.outcome(punter)
        if result == "push":
            return 0
        dealer_special = special(self.hands[self.dealer])
        punter_special = special(self.hands[punter])
        if dealer_special == 2 or punter_special == 2:
            units = 4
        else:
            units = 2
        if result == "punter":
            return units
        return -units

    def payoff_per_unit(self, punter: int) -> int:
        """§5: what one decided contest pays the punter, per unit of stake."""
        if self.decided_in_phase_3(punter):
            return self.special_payoff(punter)

        declaration = self.declarations[punter]
        call = self.calls[punter]
        reply = self.replies[punter]

        if declaration == "OPEN":
            if call == "KILL":
                if reply == "BELIEVE":
                    return -1
                if reply == "DOUBT":
                    result = self.outcome(punter)
                    if result == "dealer":
                        return -2
                    if result == "push":
                        return 2
                    return 2
            if call == "PUSH":
                if reply == "BELIEVE":
                    return 0
                if reply == "DOUBT":
                    result = self.outcome(punter)
                    if result == "dealer":
                        # §6: -2 or +2.
                        if self.rules["doubted_push_when_dealer_wins"] == 2:
                            return 2
                        return -2
                    if result == "push":
                        return -2
                    return 2
            if call == "SURRENDER":
                return 1

        if declaration == "REQUEST_PUSH":
            if call == "GRANT":
                return 0
            if call == "REFUSE":
                if reply == "CONCEDE":
                    return -1
                if reply == "CONTEST":
                    result = self.outcome(punter)
                    if result == "dealer":
                        return -2
                    if result == "push":
                        return 2
                    return 2

        if declaration == "COVER":
            if call == "FOLD":
                return 1
            if call == "LOOK":
                result = self.outcome(punter)
                if result == "dealer":
                    # §6 cover_lost_to_special: a LOOK that a dealer with a special wins.
                    if special(self.hands[self.dealer]) > 0:
                        if self.rules["cover_lost_to_special"] == 2:
                            return -4
                    return -2
                if result == "push":
                    return -2
                return 2

        if declaration == "ATTACK":
            if call == "DECLINE":
                return 1
            if call == "ACCEPT":
                result = self.outcome(punter)
                if result == "dealer":
                    return -2
                if result == "push":
                    # §6: -2 or 0, for ACCEPT and CONTEST.
                    if self.rules["attack_on_push"] == 0:
                        return 0
                    return -2
                return 2
            if call == "DEMAND":
                if reply == "PAY":
                    return -1
                if reply == "CONTEST":
                    result = self.outcome(punter)
                    if result == "dealer":
                        return -2
                    if result == "push":
                        # §6: -2 or 0, for ACCEPT and CONTEST.
                        if self.rules["attack_on_push"] == 0:
                            return 0
                        return -2
                    return 2

        if declaration == "FORCE":
            result = self.outcome(punter)
            if result == "dealer":
                return -3
            if result == "push":
                # §6: -3 or 0.
                if self.rules["force_on_push"] == 0:
                    return 0
                return -3
            return 3

        raise AssertionError("this contest is not decided")

    def payoff(self, punter: int) -> int:
        """§4.1: all units of the contest, specials included, times its stake."""
        stake = self.stakes[punter]
        if stake is None:
            stake = 1
        return self.payoff_per_unit(punter) * stake

    def returns(self) -> list[float]:
        """§4.7: the rewards of every seat once the deal is over, zeros before."""
        rewards = [0] * self.num_players
        if self.over:
            for punter in self.punters():
                units = self.payoff(punter)
                if self.reward == "transfer":
                    # §5: zero-sum; the dealer's reward is the sum over contests.
                    rewards[punter] += units
                    rewards[self.dealer] -= units
                else:
                    # §5 drinks: the loser receives minus the units and the winner 0.
                    if units < 0:
                        rewards[punter] -= -units
                    if units > 0:
                        rewards[self.dealer] -= units
        return [float(reward) for reward in rewards]

    # ---- what one seat may know -----------------------------------------------------------

    def any_comparison(self) -> bool:
        """§4.7: some contest has reached a comparison in phases 5-6."""
        for punter in self.punters():
            if self.decided(punter) == "compared":
                return True
        return False

    def shown_in_phase_7(self, owner: int) -> bool:
        """§4.7: the reveal shows this seat's hand and committed split."""
        if not self.over:
            return False
        if owner == self.dealer:
            return self.any_comparison()
        return self.decided(owner) == "compared"

    def sees_hand(self, viewer: int, owner: int) -> bool:
        """The viewer may see the owner's four cards now."""
        # §4.2: the cards are dealt after the last stake.
        if not self.stakes_done():
            return False
        if viewer == owner:
            return True
        # §4.3: with a special, the dealer shows his hand; so does each punter with one.
        if self.specials_were_declared():
            if special(self.hands[owner]) > 0:
                return True
        # §4.4
        if owner != self.dealer:
            if self.is_face_up(owner):
                return True
        # §4.7
        if self.shown_in_phase_7(owner):
            return True
        return False

    def sees_split(self, viewer: int, owner: int) -> bool:
        """The viewer may see the owner's committed split now."""
        if self.splits[owner] is None:
            return False
        if viewer == owner:
            return True
        # §4.3: a hand that is shown lies on the table as it was split.
        if self.specials_were_declared():
            if special(self.hands[owner]) > 0:
                return True
        # §4.4
        if owner != self.dealer:
            if self.is_face_up(owner):
                return True
        # §4.7
        if self.shown_in_phase_7(owner):
            return True
        return False

    def sees_declaration(self, viewer: int, owner: int) -> bool:
        """The owner has declared and the viewer may know what."""
        if self.declarations[owner] is None:
            return False
        if viewer == owner:
            return True
        # §4.4
        return self.declaration_is_public(owner)

    def sees_force_split(self, viewer: int, punter: int) -> bool:
        """The viewer may know the dealer's split for this FORCE contest."""
        if self.force_splits[punter] is None:
            return False
        if viewer == self.dealer:
            return True
        # §4.6: hidden until phase 7.
        if self.over:
            return True
        return False
