"""Shell: what each command does and takes. Knows argparse and names; imports nothing slow, so that --help is there at once."""
