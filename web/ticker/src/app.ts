/** Assembles the page: one client, its channels, and the panels that show them. */

import { Cards } from "./cards";
import { Chat } from "./chat";
import { ClusterPanel } from "./cluster_panel";
import { LISTINGS, parseNodeName, QUOTES_CHANNEL } from "./contract";
import { Crowd } from "./crowd";
import { CutPanel } from "./cut_panel";
import { byId } from "./dom";
import { explainLabels } from "./explanation";
import { milliseconds, plural, seconds, shortId } from "./format";
import { Header } from "./header";
import { IndexChart } from "./index_chart";
import { Lobby } from "./lobby";
import { Log } from "./log";
import { Market } from "./market";
import { Network } from "./network";
import { Outage, type OutageReport } from "./outage";
import { loadSdk, pageOptions } from "./sdk";
import { Stats } from "./stats";
import { Tabs } from "./tabs";

async function start(): Promise<void> {
  explainLabels();
  const { encoding, endpoint } = pageOptions(location);
  const header = new Header(encoding);
  const log = new Log();
  const network = new Network();
  const sdk = await loadSdk(encoding, endpoint);
  const client = sdk.client(network);
  byId("another-tab", HTMLAnchorElement).href = location.href;

  let clientId: string | null = null;
  let outage: Outage | null = null;
  let filled = 0;

  const market = new Market(client, sdk, {
    ticked: (stock, live) => cards.update(stock, live),
    filled: (stock) => {
      cards.update(stock, false);
      stats.showChecks();
      filled += 1;
      if (filled !== LISTINGS.length) return;
      index.seed();
      // Only now does every channel have a position to recover from.
      cutPanel.enable();
      const points = market.stocks.reduce((sum, { series }) => sum + series.points.length, 0);
      log.add(`History: ${plural(points, "publication", "publications")} on ${LISTINGS.length} channels`);
    },
    returned: (channel) => {
      cutPanel.channelReturned(channel);
      const report = outage?.add(channel, performance.now()) ?? null;
      if (report === null) return;
      outage = null;
      cutPanel.report(report);
      stats.showChecks();
      logReport(log, report);
    },
    quoted: (quotes) => index.add(quotes),
    failed: (channel, message) => log.add(`${channel}: ${message}`, "bad"),
  });

  const cards = new Cards(byId("cards", HTMLElement), market.stocks);
  const index = new IndexChart(market.stocks);
  const stats = new Stats(network, market);
  const tabs = new Tabs(sdk, { owned: () => crowd.refresh(), log: (message) => log.add(message) });
  const crowd = new Crowd((id) => (id === clientId ? "you" : tabs.owns(id) ? "yours" : "other"));
  const cutPanel = new CutPanel(market.stocks, () => {
    if (network.cut) {
      log.add("Network restored by the switch");
      network.restore();
      header.show("connecting", null);
    } else {
      log.add("Network cut by the switch: the socket is closed, and new ones are blocked", "warn");
      network.cutOff();
      // Without a connection, a cut would not be visible.
      if (outage !== null) showAway();
    }
  });

  new Lobby(client, {
    changed: (present) => crowd.show(present),
    joined: (id) => crowd.moved(id, "joined"),
    left: (id) => crowd.moved(id, "left"),
    roundTrip: (value) => header.showRoundTrip(value),
  });

  new Chat(client, sdk, {
    missed: () => log.add("Chat: older messages are gone from the history", "warn"),
    failed: (message) => log.add(`Chat: ${message}`, "bad"),
  });
  const cluster = new ClusterPanel(client, sdk, (message) => log.add(message, "warn"));

  const showAway = () => {
    outage ??= new Outage(performance.now(), LISTINGS.length);
    header.show(network.cut ? "cut" : "connecting", null);
    cutPanel.away(outage.sinceMs, network.cut);
    crowd.still(true);
  };

  client.on("connected", (context) => {
    clientId = context.client;
    header.show("connected", clientId);
    crowd.still(false);
    const node = parseNodeName(sdk.payload(context.data));
    cluster.connected(node);
    const place = node === null ? "" : ` to ${node}`;
    log.add(`Connected${place} as ${shortId(clientId)} over ${encodingName(encoding)}`, "good");
    if (outage === null) return;
    outage.back(performance.now());
    cutPanel.returning();
  });
  client.on("connecting", ({ code, reason }) => {
    const wasConnected = clientId !== null;
    clientId = null;
    cluster.connected(null);
    if (wasConnected) log.add(`Connection lost (${code}): ${reason}`, "warn");
    if (wasConnected && filled >= LISTINGS.length) showAway();
    else header.show(network.cut ? "cut" : "connecting", null);
  });
  client.on("disconnected", ({ code, reason }) => {
    clientId = null;
    cluster.connected(null);
    header.show("disconnected", null);
    crowd.still(true);
    log.add(`Disconnected (${code}): ${reason}`, "bad");
  });
  client.on("error", ({ error }) => {
    if (!network.cut) log.add(`Connection: ${error.message}`, "bad");
  });

  log.add(`Subscribing to ${LISTINGS.length} ticker channels and ${QUOTES_CHANNEL}`);
  client.connect();
}

function logReport(log: Log, report: OutageReport): void {
  if (report.restarted) {
    log.add(`The server restarted: ${report.channels} channels start with new epochs`, "warn");
    return;
  }
  const isWhole = report.missing === 0 && report.incomplete === 0;
  log.add(
    `Recovered ${report.publications} on ${report.channels} channels, ${report.missing} missing, ` +
      `after ${seconds(report.awayMs)} away, in ${milliseconds(report.recoveryMs)}`,
    isWhole ? "good" : "warn",
  );
}

function encodingName(encoding: "json" | "protobuf"): string {
  return encoding === "json" ? "JSON" : "Protobuf";
}

void start();
