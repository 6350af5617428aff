/** Whether a player can see an object, and why. */

/**
 * @typedef {{columns: number, rows: number, cellUnits: number, nearCells: number, farCells: number, farIntervalTicks: number,
 *   nearKinds: Record<string, {units: number, cells: number}>}} Grid
 * @typedef {{id: number, kind: number, x: number, y: number, cell: number, owner: number | null, fields?: Record<string, unknown>,
 *   state?: string}} RoomObject
 * @typedef {{tick: number, why?: string, from?: number, to?: number, zones?: (number | null)[] | null}} Had
 * @typedef {{id: number, view: number, avatar: number | null, had?: Had}} Player
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
 * The zone of a view: the cells of one wait together for a bandwidth limit. The last zone has the far cells.
 * @param {Grid} grid
 * @param {number} cells the distance from the cell that the player looks from
 */
export function zoneOf(grid, cells) {
  if (cells > grid.nearCells) return 3;
  if (cells <= 1) return 0;
  return cells <= Math.ceil(grid.nearCells / 2) ? 1 : 2;
}

/** @type {Record<string, string>} */
const WHY_SKIPPED = {
  connection: "its connection had not taken the last snapshot",
  shard: "several ticks came to its shard at once, and it gets the newest",
  session_pace: "its connection, or the bytes per second that its session takes, allowed no more",
  bandwidth: "its bandwidth limit (room.player_bandwidth_limit) was used up",
  pace: "it asks for fewer snapshots per second than the room has ticks",
  away: "it had no connection",
};

/**
 * What a player had after a tick, as far as its connection is concerned.
 * @param {Player} player
 * @param {number} tick
 * @param {number} last the last tick of the recording
 * @param {number} toldUntil up to which tick a connection that is not mentioned was not behind
 */
export function hadOf({ id, had }, tick, last, toldUntil) {
  if (had === undefined) {
    const unless = tick <= toldUntil ? "" : ", unless it got nothing more until the end of the recording";
    return `Player ${id} had tick ${tick}, the newest${unless}.`;
  }
  const { why, from = tick, to = tick, zones } = had;
  const sentences = [];
  const which = had.tick === 0 ? "no snapshot yet" : `tick ${had.tick}`;
  if (why === "other_node") return `Player ${id} was connected to another node of the cluster: what it was sent is not recorded.`;
  if (why === undefined) {
    sentences.push(`Player ${id} had tick ${tick}.`);
  } else {
    // A player that is away when the recording ends has no end.
    const skipped = from >= Math.min(to, last) ? `tick ${from}` : `ticks ${from} to ${Math.min(to, last)}`;
    sentences.push(`Player ${id} had ${which}: ${WHY_SKIPPED[why] ?? why} (${skipped} skipped).`);
  }
  for (const [zone, since] of (zones ?? []).entries()) {
    if (since !== null) sentences.push(waits(zone, since));
  }
  return sentences.join(" ");
}

/** @param {number} zone @param {number} since */
const waits = (zone, since) =>
  `${zone === 3 ? "Its far cells wait" : `Zone ${zone} of its view waits`} since tick ${since} for its bandwidth limit.`;

/**
 * A sentence that says whether the player can see the object, and why.
 * @param {Grid} grid
 * @param {Player} player
 * @param {RoomObject} object
 */
export function whyOf(grid, player, object) {
  const cells = distance(grid, player.view, object.cell);
  const away = cells === 1 ? "1 cell" : `${cells} cells`;
  const since = player.had?.zones?.[zoneOf(grid, cells)] ?? null;
  switch (sightOf(grid, player, object)) {
    case "own":
      return "Only this player receives it, wherever it is.";
    case "hidden":
      return object.owner === 0 ? "Nobody receives it: the game hides it." : `Only player ${object.owner} receives it.`;
    case "near":
      return since === null
        ? `In view, ${away} away: each snapshot has its changes.`
        : `In view, ${away} away. ${waits(zoneOf(grid, cells), since)}`;
    case "far":
      if (since !== null) return `In a far cell, ${away} away. ${waits(3, since)}`;
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
