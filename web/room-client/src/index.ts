/** Rooms of a Dunlin server, over the official `centrifuge` SDK. */

export { decodeBase64, encodeBase64 } from "./base64.js";
export { Clock } from "./clock.js";
export { RoomError, type RoomErrorKind } from "./error.js";
export { type Band, Grid } from "./grid.js";
export { type Encoding, encodeInput, Inputs, type PendingInput } from "./inputs.js";
export { Interpolation, type InterpolationOptions, type Place, type Shown } from "./interpolation.js";
export { fieldsBetween } from "./motion.js";
export { AHEAD_TICKS_MAX, Prediction, type Rules, Smoothing } from "./prediction.js";
export { type Changes, Replica, REPLICA_LIMITS, type ReplicaLimits, type SeenObject } from "./replica.js";
export { type ByteCount, type GameEvent, Room, type RoomClient, type RoomEvents, type RoomOptions, type RoomState, type RoomSubscription } from "./room.js";
export { type Field, type FieldValue, type FieldValues, type Kind, type Motion, Schema } from "./schema.js";
export { type CellUpdate, decodeSnapshot, type GridShape, type RoomObject, type Snapshot, snapshotFromJson } from "./snapshot.js";
export { SocketMeter } from "./socket_meter.js";
export { type Figures, Statistics } from "./statistics.js";
