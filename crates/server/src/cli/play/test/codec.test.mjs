/** The codec of the playground's page against the vectors of the client protocol. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { commandsOf, encode, frameOf, repliesOf, sizeOf } from "../page/codec.js";

const VECTORS = new URL("../../../../../../schema/vectors/protocol/", import.meta.url);

/**
 * Only what both encodings can say: JSON has no payload that is not JSON, and JavaScript no number of more than 53 bits. The page sends
 * and expects no negative one.
 */
function vectorsOf(file) {
  const { vectors } = JSON.parse(readFileSync(new URL(file, VECTORS), "utf8"));
  return vectors.filter(({ json, protobuf }) => typeof json === "string" && protobuf && !/\d{16}|:-\d/.test(json));
}

const binary = (hex) => frameOf(Uint8Array.from(Buffer.from(hex, "hex")).buffer);

for (const file of ["replies.json", "pushes.json"]) {
  test(`both encodings of ${file} mean the same`, () => {
    const vectors = vectorsOf(file);
    assert.ok(vectors.length > 20, `${vectors.length} vectors`);
    for (const { name, json, protobuf } of vectors) {
      assert.deepEqual(repliesOf(binary(protobuf)).map(withoutZeros), repliesOf(frameOf(json)).map(withoutZeros), name);
    }
  });
}

test("commands are encoded as official clients encode them", () => {
  let compared = 0;
  for (const { name, json, protobuf } of vectorsOf("commands.json")) {
    const commands = commandsOf(frameOf(json));
    // The page sends one command per frame, and not all that clients may.
    const known = ["connect", "subscribe", "unsubscribe", "publish", "presence", "presence_stats", "history", "ping"];
    if (commands.length !== 1 || !known.some((key) => key in commands[0]) || /headers|"tf"|"flag"|"type"/.test(json)) continue;
    const frame = encode("protobuf", commands[0]);
    assert.deepEqual(commandsOf(frame).map(withoutZeros), commandsOf(binary(protobuf)).map(withoutZeros), name);
    compared += 1;
  }
  assert.ok(compared > 15, `${compared} commands`);
});

test("a frame of Protobuf has the length before the message", () => {
  assert.deepEqual(encode("protobuf", {}).bytes, Uint8Array.of(0));
  assert.deepEqual(encode("protobuf", { id: 300, ping: {} }).bytes, Uint8Array.of(5, 0x08, 0xac, 0x02, 0x5a, 0));
  assert.equal(sizeOf(encode("json", { id: 1, publish: { channel: "ж", data: null } })), 47);
});

test("large numbers, and payloads that are no JSON", () => {
  const offset = 2 ** 53 - 1;
  const command = { id: 1, history: { channel: "c", since: { offset, epoch: "e" } } };
  assert.deepEqual(commandsOf(encode("protobuf", command)), [command]);
  const [push] = repliesOf(binary("0a220812016322032201ff"));
  assert.deepEqual(push, { push: { channel: "c", pub: { data: { "not JSON, in hex": "ff" } } } });
});

test("frames that are cut are refused", () => {
  const whole = encode("protobuf", { id: 1, publish: { channel: "news", data: { text: "hello" } } }).bytes;
  for (let length = 1; length < whole.length; length += 1) {
    assert.throws(() => commandsOf({ bytes: whole.subarray(0, length) }), /ends too early/, `${length} bytes`);
  }
});

test("names from outside reach no prototype", () => {
  const command = { id: 1, connect: { subs: JSON.parse('{"__proto__": {"recover": true}}') } };
  const [decoded] = commandsOf(encode("protobuf", command));
  assert.deepEqual(Object.keys(decoded.connect.subs), ["__proto__"]);
  assert.equal({}.recover, undefined);
});

/** Without fields whose value Protobuf does not write. */
function withoutZeros(value) {
  if (Array.isArray(value)) return value.map(withoutZeros);
  if (typeof value !== "object" || value === null) return value;
  const isEmpty = (one) => [0, false, ""].includes(one) || (typeof one === "object" && one !== null && Object.keys(one).length === 0);
  const fields = Object.entries(value).map(([name, one]) => [name, withoutZeros(one)]);
  return Object.fromEntries(fields.filter(([, one]) => !isEmpty(one)));
}
