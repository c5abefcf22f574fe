"""Study: which of the papers' claims hold here, counted on the very same prompts. Knows races; knows no page and reads no clock."""
