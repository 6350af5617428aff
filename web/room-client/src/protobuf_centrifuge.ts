/** The official SDK with a Protobuf codec that is a tenth as large as the one of `centrifuge/build/protobuf`. */

import { Centrifuge, type Options } from "centrifuge";
import { ProtobufCodec } from "./protobuf_codec.js";

type Endpoint = ConstructorParameters<typeof Centrifuge>[0];

/**
 * The SDK's client in Protobuf, with all features of the SDK except deltas, HTTP streams and WebTransport. The SDK's
 * own Protobuf build also replaces the member `_codec`.
 */
export class ProtobufCentrifuge extends Centrifuge {
  constructor(endpoint: Endpoint, options?: Partial<Options>) {
    super(endpoint, options);
    this._codec = new ProtobufCodec();
  }
}
