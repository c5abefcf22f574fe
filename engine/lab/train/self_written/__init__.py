"""What a target writes by itself, and its features of it: all that a first drafter needs. Knows turns and rows; knows no net."""
