"""The game in the shapes that other libraries expect: one thin module for each."""
