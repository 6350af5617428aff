// Clients that follow channels and print a line of JSON for each event:
//
//   node follower.mjs URL CLIENTS CHANNEL...
//
// Client N follows the channel with the index N modulo the number of channels. {"client", "begin"}: the offset at which
// it began. {"client", "recovered"}: after a reconnect. {"client", "offset", "id"}: a publication.
import { Centrifuge as JsonCentrifuge } from 'centrifuge';
import { Centrifuge as ProtobufCentrifuge } from 'centrifuge/build/protobuf';
import WebSocket from 'ws';

const [url, clients, ...channels] = process.argv.slice(2);

function print(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function follow(client, channel) {
  const isProtobuf = client % 2 === 1;
  const Centrifuge = isProtobuf ? ProtobufCentrifuge : JsonCentrifuge;
  const centrifuge = new Centrifuge(url, { websocket: WebSocket, maxReconnectDelay: 2000 });
  const subscription = centrifuge.newSubscription(channel);
  subscription.on('subscribed', ({ wasRecovering, recovered, streamPosition }) => {
    print(wasRecovering ? { client, recovered } : { client, begin: streamPosition.offset });
  });
  subscription.on('publication', ({ offset, data }) => {
    const { id } = isProtobuf ? JSON.parse(new TextDecoder().decode(data)) : data;
    print({ client, offset, id });
  });
  subscription.subscribe();
  centrifuge.connect();
}

for (let client = 0; client < Number(clients); client += 1) follow(client, channels[client % channels.length]);
