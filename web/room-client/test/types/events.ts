// Compiled, not run: the types that an application sees.
import { Centrifuge } from "centrifuge";
import { Centrifuge as OfficialProtobuf } from "centrifuge/build/protobuf";
import { Room } from "../../dist/index.js";
import { ProtobufCentrifuge } from "../../dist/protobuf_centrifuge.js";

interface HuntEvents {
  found: { name: string; value: number };
  clue: { x: number; y: number } | null;
}

const client = new ProtobufCentrifuge("wss://example.org", { getToken: async () => "token" });
const room = new Room<HuntEvents>(client, "hunt:1", { encoding: "protobuf", getToken: async (channel) => channel });
room.onEvent("found", ({ name, value }, tick) => name.length + value + tick);
room.on("event", ({ tick, event }) => ("clue" in event ? (event.clue?.x ?? tick) : event.found.value));
// @ts-expect-error: the game has no such event.
room.onEvent("lost", () => {});
// @ts-expect-error: a value is a number.
room.onEvent("found", ({ value }) => value.length);
// @ts-expect-error: it may be null.
room.onEvent("clue", (clue) => clue.x);

const untyped = new Room(new Centrifuge("wss://example.org"), "hunt:1");
untyped.onEvent("anything", (value: unknown, tick: number) => [value, tick]);
new Room(new OfficialProtobuf("wss://example.org"), "hunt:1", { encoding: "protobuf" });
