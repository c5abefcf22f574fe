"""Study: which of the papers' claims hold here, counted on the very same prompts. Reads no clock."""
