/** What can be wrong with what a room or a caller says. */

export type RoomErrorKind =
  /** The bytes or the object are not of the format. */
  | "malformed"
  /** The snapshot builds on a tick that is not here. */
  | "wrong_base"
  /** The snapshot is about a cell outside the map or the view. */
  | "wrong_cell"
  /** The snapshot holds more than may be kept. */
  | "too_large"
  /** The client speaks the other encoding. */
  | "wrong_encoding"
  /** An input was given at a time when there is no room for it. */
  | "not_joined";

/** The only error that this package throws on account of what came from outside. */
export class RoomError extends Error {
  override readonly name = "RoomError";

  constructor(
    readonly kind: RoomErrorKind,
    message: string,
  ) {
    super(message);
  }
}

export function malformed(what: string): RoomError {
  return new RoomError("malformed", `the snapshot is malformed: ${what}`);
}
