"""At once: drafters whose whole tree is one compiled call, and the bridge to it. Knows drafters; knows no policy."""
