"""Every speed claim, runnable: ratios against a peer that is measured in the same run."""
