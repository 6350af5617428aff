/** The Protobuf build of the SDK, a file of its own because only `?encoding=protobuf` needs it. */
export { Centrifuge } from "centrifuge/build/protobuf";
