// A sweep's cells in words and letters, for all of its charts. Knows one cell at a time.

TreeRace.sweepCells = (() => {
  const { asNumber, asPercent } = TreeRace.numbers;
  const { escapeMarkup } = TreeRace.text;

  const lettering = () => Math.round(Math.max(12, Math.min(22, window.innerWidth / 92)));

  /**
   * @param {Cell} cell
   * @param {{ x: SweepAxis, y: SweepAxis }} sweep
   */
  function cellWords(cell, sweep) {
    const where = `${sweep.x.name} ${cell.x}, ${sweep.y.name} ${cell.y}`;
    if (cell.refused) return `${where}<br>${escapeMarkup(cell.refused)}`;
    return [
      where,
      `${asNumber(cell.speedup, 2)}× plain decoding’s speed, ${asNumber(cell.tau, 2)} tokens a pass`,
      `${asNumber(cell.mean_nodes, 1)} nodes a tree, ${asNumber(cell.ms_per_token, 2)} ms a token`,
      `${asPercent(cell.draft_share)} of the time drafts, ${asPercent(cell.verify_share)} verifies`,
      escapeMarkup(cell.disturbed),
    ]
      .filter(Boolean)
      .join("<br>");
  }

  return { cellWords, lettering };
})();
