"""Shell: what each command takes, by group. Knows argparse and names; imports nothing slow, so that --help is there at once."""
