"""The game itself, in plain Python: cards, hands, rules, contest tree, deals, states."""
