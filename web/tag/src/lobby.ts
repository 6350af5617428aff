/** Assembles the lobby's page: the rooms of the game, and a place in one of them. */

import { byId, setText } from "../../ticker/src/dom";
import { loadSdk, pageOptions } from "../../ticker/src/sdk";
import { forgetGuest, guestOptions, INVALID_TOKEN } from "./guest";
import { Listing } from "./listing";
import { fieldsOf, text } from "./events";
import { LOBBY_CHANNEL } from "./rules";
import { Ticket } from "./ticket";

async function start(): Promise<void> {
  const { encoding, endpoint } = pageOptions(location, "protobuf");
  const sdk = await loadSdk(encoding, endpoint, "lobby");
  const options = await guestOptions();
  const client = sdk.client(null, options);
  const pageOf = (room: string, watches: boolean) =>
    `../tag/?${new URLSearchParams({ room, encoding, ...(watches ? { watch: "" } : {}) })}`;
  const listing = new Listing(pageOf);
  const lobby = client.newSubscription(LOBBY_CHANNEL);
  lobby.on("subscribed", () => listing.clear());
  lobby.on("publication", ({ data }) => listing.take(sdk.payload(data)));

  const play = byId("play", HTMLButtonElement);
  const state = byId("match-state", HTMLElement);
  let ticket: Ticket | null = null;
  const show = (words: string) => {
    setText(play, ticket === null ? "Play" : "Cancel");
    setText(state, words);
  };
  play.addEventListener("click", () => {
    if (ticket !== null) {
      ticket.cancel();
      ticket = null;
      show("");
      return;
    }
    const asked = new Ticket(sdk, client);
    ticket = asked;
    show("Looking for a room\u2026");
    asked.place().then((channel) => {
      if (channel === null) return;
      show(`Joining ${channel}`);
      location.href = pageOf(channel, false);
    }).catch((error: unknown) => {
      if (ticket !== asked) return;
      ticket = null;
      show(`No room: ${text(fieldsOf(error)["message"])}`);
    });
  });
  const connection = (name: string, words: string) => {
    byId("state", HTMLElement).dataset["state"] = name;
    setText(byId("state-word", HTMLElement), words);
    play.disabled = name !== "connected" || options.token === undefined;
  };
  client.on("connecting", () => connection("connecting", "Connecting"));
  client.on("connected", () => connection("connected", "Connected"));
  client.on("disconnected", ({ code }) => {
    if (code === INVALID_TOKEN) forgetGuest();
    connection("disconnected", "Disconnected");
  });
  if (options.token === undefined) show("This server gives guests no user id, so there is no matchmaking. You can join a room of the list.");
  lobby.subscribe();
  client.connect();
}

void start();
