/** Whether a player can see an object, and why. */

/**
 * @typedef {{columns: number, rows: number, cellUnits: number, nearCells: number, farCells: number, farIntervalTicks: number,
 *   nearKinds: Record<string, {units: number, cells: number}>}} Grid
 * @typedef {{id: number, kind: number, x: number, y: number, cell: number, owner: number | null, fields?: Record<string, unknown>,
 *   state?: string}} RoomObject
 * @typedef {{id: number, view: number, avatar: number | null}} Player
 */

/**
 * The distance of a cell from the cell that a player looks from, in cells.
 * @param {Grid} grid
 * @param {number} view
 * @param {number} cell
 */
export function distance(grid, view, cell) {
  const columns = Math.abs((view % grid.columns) - (cell % grid.columns));
  const rows = Math.abs(Math.floor(view / grid.columns) - Math.floor(cell / grid.columns));
  return Math.max(columns, rows);
}

/**
 * @param {Grid} grid
 * @param {Player} player
 * @param {RoomObject} object
 * @returns {"own" | "near" | "far" | "outside" | "hidden" | "unseen"} "unseen" is in the view, but of a kind that is visible only nearer
 */
export function sightOf(grid, player, object) {
  if (object.owner !== null) return object.owner === player.id ? "own" : "hidden";
  const cells = distance(grid, player.view, object.cell);
  if (cells > grid.nearCells + grid.farCells) return "outside";
  if (cells > (grid.nearKinds[object.kind]?.cells ?? cells)) return "unseen";
  return cells <= grid.nearCells ? "near" : "far";
}

/**
 * A sentence that says whether the player can see the object, and why.
 * @param {Grid} grid
 * @param {Player} player
 * @param {RoomObject} object
 */
export function whyOf(grid, player, object) {
  const cells = distance(grid, player.view, object.cell);
  const away = cells === 1 ? "1 cell" : `${cells} cells`;
  switch (sightOf(grid, player, object)) {
    case "own":
      return "Only this player receives it, wherever it is.";
    case "hidden":
      return object.owner === 0 ? "Nobody receives it: the game hides it." : `Only player ${object.owner} receives it.`;
    case "near":
      return `In view, ${away} away: each snapshot has its changes.`;
    case "far":
      return `In a far cell, ${away} away (near: up to ${grid.nearCells}): `
        + `its changes come once in ${grid.farIntervalTicks} ticks, later under a bandwidth limit.`;
    case "unseen": {
      const { units, cells: reach } = grid.nearKinds[object.kind] ?? { units: 0, cells: 0 };
      return `In the view, ${away} away, but its kind is visible only within ${units} units: up to ${reach === 1 ? "1 cell" : `${reach} cells`} away.`;
    }
    case "outside":
      return `Outside of the view: ${away} away, and this player sees up to ${grid.nearCells + grid.farCells}.`;
  }
}
