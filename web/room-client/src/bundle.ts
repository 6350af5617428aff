/** Everything in one file, for pages without a bundler: the room client and the SDK, in Protobuf. */

export * from "./index.js";
export { ProtobufCentrifuge as Centrifuge } from "./protobuf_centrifuge.js";
