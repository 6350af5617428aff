/** The Protobuf build of the SDK, in a separate file because only `?encoding=protobuf` needs it. */
export { Centrifuge } from "centrifuge/build/protobuf";
