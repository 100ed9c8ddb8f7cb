"""Render docs/table.png: the end of a deal at a table of four, all cards open."""

from __future__ import annotations

from pathlib import Path

from shuiyu_env import Action, Game
from shuiyu_env.render import save_picture

HANDS = ["As Kd 7c 2h", "Qs 9h 8d 4c", "Js Ts 6d 5c", "Ah Kc 3d 3s"]
PLAY = """
    SPLIT_0 SPLIT_1 SPLIT_0 SPLIT_0
    OPEN ATTACK FORCE
    KILL DOUBT DEMAND CONTEST SPLIT_1
"""


def main() -> None:
    state = Game(num_players=4).new_state(hands=HANDS)
    for name in PLAY.split():
        state.apply(Action[name])
    save_picture(state.view(None), Path(__file__).with_name("table.png"))


if __name__ == "__main__":
    main()
