"""What ``patching`` puts in the place of other things, and how it is taken out again."""
