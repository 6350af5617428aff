/** The kinds of errors in data from a room or a caller. */

export type RoomErrorKind =
  /** The bytes or the object do not have the format. */
  | "malformed"
  /** The snapshot's base is a tick that the replica does not show. */
  | "wrong_base"
  /** The snapshot is about a cell outside the map or the view. */
  | "wrong_cell"
  /** The snapshot exceeds the limits of the replica. */
  | "too_large"
  /** The client uses the other encoding. */
  | "wrong_encoding"
  /** An input was sent while the room was not joined. */
  | "not_joined";

/** The only error that this package throws because of data from outside. */
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
